"""The vocabulary of a kind's specs: the kind's own parameters and those of every registered part."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, TypeAlias

from pausejax.parts import CATEGORIES, Parameter, Part, PartError
from pausejax.parts.extensions import Layer
from pausejax.spelling import nearest
from pausejax.study.reserved import RESERVED

Say: TypeAlias = Callable[[str, Any, str], None]
"""Function that reports a mistake; its arguments are a key, its value, and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Keys and parameters that specs of one kind may use, and the parts that read each parameter."""

    study: Mapping[str, Parameter]
    """Keys of the whole study. They set the result's dimensions, so they can't be axes."""
    parameters: Mapping[str, Parameter]
    """Parameters, sorted by section; in each section, the kind's parameters precede those of parts."""
    aliases: Mapping[str, str]
    """Name of a parameter by its alias or symbol."""
    policies: Mapping[str, Part]
    readers: Mapping[str, Mapping[str, frozenset[str]]]
    """For each parameter that only parts read: the names of these parts, by their category's key.

    The key of policies is "".
    """
    ignored: Mapping[str, frozenset[str]]
    """By mode: parameters that no run of the mode reads, unless its policy reads them."""
    parts: Layer = dataclasses.field(compare=False)
    """The parts, with the names that their parameters have in the study."""
    ambiguous: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """For each name that several parts use for different parameters: the names to write instead.

    An example is first.width.
    """

    @functools.cached_property
    def _names_in_code(self) -> dict[str, str]:
        """The name in a part's code of each parameter that has another name in the study."""
        return {
            full: name
            for category in CATEGORIES
            for part in self.parts.of(category).values()
            for full, name in part.arguments.items()
        }

    def declared_names(self, names: Iterable[str]) -> dict[str, str]:
        """Returns, for each parameter of a run, the name that the parameter has in the part's own code.

        The identity of a run is made with these names, because the names in a study depend on its other
        parts. For example, `width` becomes `first.width` if a second part declares another `width`. If two
        parameters of the run have one name in code, both keep their names in the study.
        """
        found = {name: self._names_in_code.get(name, name) for name in names}
        times = Counter(found.values())
        return {name: short if times[short] == 1 else name for name, short in found.items()}

    def hint(self, name: str, known: Iterable[str]) -> str:
        """Returns the names that a spec may write in place of an unknown name, as the end of a message."""
        if name not in self.ambiguous:
            return nearest(name, known)
        ways = " or ".join(f'"{way}"' for way in self.ambiguous[name])
        return f". Several parts of this study have a parameter of this name, so write {ways}"

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.section for p in self.parameters.values()))

    def for_policy_alone(self, name: str) -> bool:
        """Returns whether only policies read a parameter."""
        return set(self.readers.get(name, {})) == {""}

    def is_idle(self, name: str, algorithm: str) -> bool:
        """Returns whether only policies read a parameter, and the policy `algorithm` does not read it."""
        return self.for_policy_alone(name) and name not in self.policies[algorithm].reads

    def is_read(self, name: str, mode: str, algorithm: str) -> bool:
        """Returns whether some run of a policy may depend on a parameter."""
        if name in self.policies[algorithm].reads:
            return True
        if name in self.ignored.get(mode, ()):
            return False
        return not self.for_policy_alone(name)

    def is_read_at(self, name: str, algorithm: str, point: Mapping[str, Any]) -> bool:
        """Returns whether a run depends on a parameter.

        `point` has the values of all parameters that the run's policy may read.
        """
        readers, unread = self.readers.get(name), self.parameters[name].unread_with
        if name in self.policies[algorithm].reads:
            return True
        if readers is None:
            return unread is None or point.get(unread[0]) not in unread[1]
        return any(key in point and point[key] in parts for key, parts in readers.items() if key)


def make(
    study: Mapping[str, Parameter],
    parameters: Mapping[str, Parameter],
    for_policies: Set[str],
    policies: str,
    categories: Iterable[str],
    ignored: Mapping[str, frozenset[str]],
    parts: Layer,
    mentioned: Set[str] = frozenset(),
) -> Vocabulary:
    """Returns the vocabulary of a kind of study: its own keys and those of some parts.

    Args:
      study: the keys of the whole study.
      parameters: the parameters of the kind.
      for_policies: names of the parameters that only policies read.
      policies: the category of the kind's policies.
      categories: the other categories of parts that the kind's specs name.
      ignored: by mode, parameters of the kind that no run in this mode reads.
      parts: all registered parts.
      mentioned: words of the spec. A study uses the parts that it mentions, and the default of each category.
        If two used parts define one parameter differently, each part gets its own name for the parameter.

    Raises:
      PartError: a part and the kind use one name for different parameters, or a value has no clear default.
    """
    named = {category: parts.of(category) for category in categories}
    own = dict(parameters)
    for category, found in named.items():
        key = CATEGORIES[category].key
        if key in own:
            own[key] = dataclasses.replace(own[key], choices=tuple(found))
    readers: dict[str, dict[str, frozenset[str]]] = {name: {"": frozenset()} for name in for_policies}
    origin: dict[str, Part] = {}
    added: dict[str, Parameter] = {}
    clashes: dict[str, list[Part]] = {}
    unclear: set[str] = set()
    sharing: dict[str, list[Part]] = {}
    of_category = {**named, policies: parts.of(policies)}
    everything = [(category, part) for category, found in of_category.items() for part in found.values()]
    used = {
        (category, name)
        for category, found in of_category.items()
        for name in found.keys() & _meant(own.get(CATEGORIES[category].key), mentioned)
    }
    keys = RESERVED | study.keys()
    reserved = keys | {parameter.section for parameter in own.values()}
    for unused in (False, True):
        for category, part in everything:
            if unused != (part.outside and (category, part.name) not in used):
                continue
            for name, parameter in part.parameters.items():
                other = own.get(name) or added.get(name)
                overlap = (reserved | _spelled(own | added)) & {name, *parameter.spellings}
                if unused and not other and (overlap or parameter.section in keys):
                    continue  # only a study that uses the part is refused
                if other and not other.agrees_with(parameter):
                    first = origin.get(name)
                    if (category, part.name) not in used:
                        unclear |= {name} - own.keys()
                        continue
                    if name in own or (first and first.name == part.name):
                        raise PartError(_disagreement(part, parameter, other, first))
                    if first and (first.category, first.name) in used:
                        clashes.setdefault(name, [first]).append(part)
                    else:  # no part reads the other parameter
                        added[name], origin[name] = parameter, part
                if name in reserved:
                    raise PartError(f"{part.where}: {name}: every study has this key. Rename the parameter")
                if parameter.section in keys:
                    raise PartError(
                        f"{part.where}: {name}: {parameter.section!r} is a key of every study, no section. "
                        "Choose another section"
                    )
                origin.setdefault(name, part)
                if name not in own:
                    added.setdefault(name, parameter)
                    if (category, part.name) in used and name not in part.arguments:
                        sharing.setdefault(name, []).append(part)
            for name in part.reads - (own.keys() - for_policies):
                of_key = readers.setdefault(name, {})
                key = CATEGORIES[category].key
                of_key[key] = of_key.get(key, frozenset()) | {part.name}
    for category, part in everything:
        for name in unclear.intersection(part.given) if (category, part.name) in used else ():
            first, said = origin[name], mentioned & {name, *added[name].spellings}
            if first.outside and (first.category, first.name) not in used and not said:
                raise PartError(
                    f"{part.where}: {name}: has no default, and parts that this study does not use have "
                    f"different ones. Set {name}, or give it a default"
                )
    if clashes:
        taken = {name for _, part in everything for name in part.parameters}
        for name, found_parts in clashes.items():
            for part in found_parts:
                if (full := f"{part.name}_{name}") in taken | own.keys():
                    raise PartError(
                        f"{part.where}: {name}: another part has this parameter too. It can't get the name "
                        f"{full}, because a third parameter has this name. Rename one of the three"
                    )
        layer = _with_own(parts, clashes.keys())
        whole = make(study, parameters, for_policies, policies, categories, ignored, layer, mentioned)
        ways = {name: tuple(f"{part.name}.{name}" for part in found) for name, found in clashes.items()}
        return dataclasses.replace(whole, ambiguous={**whole.ambiguous, **ways})
    by_section = sorted_by_section(own, added)
    aliases: dict[str, str] = {}
    for name, parameter in by_section.items():
        for spelling in parameter.spellings:
            holder = aliases.setdefault(spelling, name)
            if holder != name or spelling in by_section:
                both = (name, holder if holder != name else spelling)
                # The user can change a part of their own.
                blamed = next((one for one in both if one in origin and origin[one].outside), name)
                where = origin[blamed].where if blamed in origin else blamed
                problem = f"another parameter has the symbol {spelling}. Choose another name or symbol"
                raise PartError(f"{where}: {blamed}: {problem}")
    # A spec with first.width stays valid if the study no longer uses `second`, which also has a `width`.
    sections = {parameter.section for parameter in by_section.values()}
    single = {name: found[0] for name, found in sharing.items() if len(found) == 1}
    times = Counter(f"{part.name}_{name}" for name, part in single.items())
    for name, part in single.items():
        for spelling in (f"{part.name}.{name}", f"{part.name}_{name}"):
            if part.name not in sections and spelling not in by_section and times[spelling] < 2:
                aliases.setdefault(spelling, name)
    learning = {name for name, of_key in readers.items() if _learns(of_key, categories)}
    idle = {mode: names | frozenset(learning) for mode, names in ignored.items()}
    known = {name: of_key for name, of_key in readers.items() if name in by_section}
    return Vocabulary(study, by_section, aliases, parts.of(policies), known, idle, parts)


def _meant(key: Parameter | None, mentioned: Set[str]) -> Set[str]:
    """Returns which parts a spec may name under a key; None stands for policies and quantities."""
    if key is None:
        return mentioned
    return {key.default} | (mentioned if mentioned & {key.name, *key.spellings} else frozenset())


def _with_own(parts: Layer, names: Set[str]) -> Layer:
    """Returns a layer in which each part has a name of its own for the parameters `names`: first.width."""
    found = Layer(parts, parts.sources)
    for category in CATEGORIES:
        for part in parts.of(category).values():
            if not names.isdisjoint(part.parameters):
                found.add(part.with_own(names))
    return found


def sorted_by_section(own: Mapping[str, Parameter], added: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Returns the parameters by section: first the kind's sections, then those that only parts have.

    In each section, the kind's parameters precede those of parts.
    """
    sections = dict.fromkeys(p.section for p in (*own.values(), *added.values()))
    return {
        name: parameter
        for section in sections
        for parameters in (own, added)
        for name, parameter in parameters.items()
        if parameter.section == section
    }


def _learns(of_key: Mapping[str, frozenset[str]], categories: Iterable[str]) -> bool:
    """Returns whether only parts that train models read a parameter. `of_key` has these parts by category
    key."""
    learners = {CATEGORIES[category].key for category in categories if CATEGORIES[category].learning}
    return bool(of_key) and set(of_key) <= learners


def _spelled(parameters: Mapping[str, Parameter]) -> set[str]:
    return {word for name, parameter in parameters.items() for word in (name, *parameter.spellings)}


def _disagreement(part: Part, parameter: Parameter, other: Parameter, first: Part | None) -> str:
    fields = [
        f"{field} {getattr(parameter, field)!r} against {getattr(other, field)!r}"
        for field in parameter.differences(other)
    ]
    return (
        f"{part.file}: {part.category} {part.name}: {parameter.name}: must equal the parameter of this name "
        f"of {first.where if first else 'every study'}: {'; '.join(fields)}"
    )
