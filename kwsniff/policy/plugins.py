"""Plugins: where they come from, and which hooks they have.

In: what the user named (a path, an entry point), or objects. Out: a plugin with its hook functions. Whatever
is wrong with one is said here, as a ConfigError, before the first byte: a hook that is none, a function that
nobody would ever call, an API that there is not. Knows nothing of what hooks are called with.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from kwsniff import wire
from kwsniff.errors import ConfigError
from kwsniff.hooks import PROJECT, Hooks
from kwsniff.wire import schema

HOOKS = tuple(name for name, member in vars(Hooks).items() if inspect.isfunction(member))
_OBJECT = "plugin"
"""In a module: the object (or class) that is the plugin."""


@dataclass(eq=False)
class Plugin:
    """One plugin, ready to be called. hooks: name -> a function of the hook's argument (`wants`: of none)."""

    name: str
    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    source: Any = None
    """What was registered: a module or an object."""

    @property
    def required(self) -> bool:
        return getattr(self.source, "required", False) is True

    def wants(self) -> frozenset[int] | None:
        """The keys of the APIs that it wants to see; None: all. Raises ConfigError."""
        ask = self.hooks.get("wants")
        try:
            names = ask() if ask else None
            if names is None:
                return None
            return frozenset(_key(self.name, name) for name in ([names] if isinstance(names, str) else names))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"plugin {self.name}: wants: {told(error)}") from error


def told(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def load(spec: str) -> tuple[str, object]:
    """(name, plugin) of a path (it ends in .py or has a slash), or of an entry point of the group "kwsniff".

    In a module, `plugin` is the plugin where there is one (a class is called), else the module itself is.
    Raises ConfigError. Running the module is as safe as running any program: whoever names it trusts it.
    """
    module: object
    if spec.endswith(".py") or "/" in spec:
        name, module = Path(spec).stem, _from_path(spec)
    else:
        name, module = spec, _from_entry_point(spec)
    found: object = getattr(module, _OBJECT, module) if isinstance(module, ModuleType) else module
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise ConfigError(f"plugin {spec}: {_cause(error)}") from error
    return name, found


def attached(plugins: Iterable[tuple[str, object]]) -> list[Plugin]:
    """The plugins in their order, with what they implement. Raises ConfigError."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    found: dict[str, Plugin] = {}
    for name, source in plugins:
        if name in found:
            raise ConfigError(f"there are two plugins called {name}; a plugin's name is that of its file")
        found[name] = Plugin(name, source=source)
        try:
            manager.register(source, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise ConfigError(f"plugin {name}: {' '.join(str(error).split())}") from error
    _refuse_unknown(manager)
    for hook in HOOKS:
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            found[implementation.plugin_name].hooks[hook] = _callable(hook, implementation)
    for plugin in found.values():
        _refuse_unmarked(plugin)
    return list(found.values())


def _refuse_unknown(manager: pluggy.PluginManager) -> None:
    """pluggy's `check_pending`, with the plugin's name and a near miss."""
    for hook in vars(manager.hook).values():
        if isinstance(hook, pluggy.HookCaller) and not hook.has_spec():
            name = hook.get_hookimpls()[0].plugin_name
            raise ConfigError(f"plugin {name}: there is no hook {hook.name}{schema.near(hook.name, HOOKS)}")
    manager.check_pending()


def _callable(hook: str, implementation: pluggy.HookImpl) -> Callable[..., Any]:
    function = implementation.function
    where = f"plugin {implementation.plugin_name}: {hook}"
    if implementation.hookwrapper or implementation.wrapper:
        raise ConfigError(f"{where} is a wrapper; plugins are called one at a time, none around another")
    if implementation.tryfirst or implementation.trylast:
        raise ConfigError(f"{where} asks for a place; plugins are called in the order they are given")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} is async; hooks are plain functions")
    if implementation.argnames or hook == "wants":
        return function
    return lambda _: function()


def _refuse_unmarked(plugin: Plugin) -> None:
    """A hook's name on a function that nobody would call is a forgotten mark."""
    for hook in HOOKS:
        if hook not in plugin.hooks and inspect.isroutine(getattr(plugin.source, hook, None)):
            raise ConfigError(f"plugin {plugin.name}: {hook} is not marked with @hookimpl (kwsniff.hooks)")
    if not plugin.hooks.keys() - {"wants"}:
        raise ConfigError(f"plugin {plugin.name} has no hook; hooks are {', '.join(HOOKS)}")


def _from_path(spec: str) -> ModuleType:
    if not Path(spec).is_file():
        raise ConfigError(f"plugin {spec}: there is no such file")
    # Its own module each time: what it keeps belongs to one proxy.
    name = f"kwsniff_plugin_{Path(spec).stem}_{len(sys.modules)}"
    found = importlib.util.spec_from_file_location(name, spec)
    if found is None or found.loader is None:
        raise ConfigError(f"plugin {spec}: a plugin is a Python file, its name ends in .py")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and msgspec look their annotations up there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"plugin {spec}: {_cause(error)}") from error
    return module


def _from_entry_point(spec: str) -> object:
    known = importlib.metadata.entry_points(group=PROJECT)
    if spec not in known.names:
        installed = ", ".join(sorted(known.names)) or "none is"
        raise ConfigError(
            f"no installed plugin is called {spec}{schema.near(spec, known.names)}; installed: {installed}. "
            "A file is given by its path, e.g. plugins/x.py"
        )
    try:
        return known[spec].load()
    except Exception as error:
        raise ConfigError(f"plugin {spec}: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """What went wrong, and in which line of the plugin."""
    if isinstance(error, ConfigError):
        return str(error)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" (line {at.tb_lineno} of {Path(at.tb_frame.f_code.co_filename).name})" if at else ""
    return told(error) + where


@cache
def _keys() -> dict[str, int]:
    """API names as people write them -> keys."""
    return {
        _plain(info.name.removesuffix("Request")): info.api_key
        for info in wire.messages()
        if info.type == "request" and info.api_key is not None
    }


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()


def _key(plugin: str, name: object) -> int:
    if not isinstance(name, str):
        raise ConfigError(f"plugin {plugin}: wants: {name!r} is no name of an API; `kwsniff apis` lists them")
    key = _keys().get(_plain(name))
    if key is None:
        stems = [info.name.removesuffix("Request") for info in wire.messages() if info.type == "request"]
        raise ConfigError(f"plugin {plugin}: wants: there is no API {name}{schema.near(name, stems)}")
    return key
