"""Shapes of functions that are hard to tell apart; labels.json says what each of them is."""

import asyncio
import contextlib
import dataclasses
import functools
import typing


def traced(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


def tagged(
    tag,
):
    def decorate(function):
        return function

    return decorate


@traced
@tagged(
    "a decorator of several lines"
)
@traced
def decorated(number):
    return number + 1


double, triple = lambda number: number * 2, lambda number: number * 3
single = lambda number: number
by_default = lambda number, then=lambda number: number + 1: then(number)


def takes_a_function(function=lambda: 5):
    return function()


class Shop:
    class Item:
        def total(self):
            return 1

        class Part:
            def total(self):
                return 2

    rate = staticmethod(lambda: 3)

    def __init__(self):
        self.items = [self.Item(), self.Item.Part()]

    @property
    def total(self):
        return sum(item.total() for item in self.items) + self.__extra()

    @total.setter
    def total(self, value):
        self.items = [self.Item()] * value

    @staticmethod
    def make():
        return Shop()

    @classmethod
    def build(cls):
        return cls.make()

    def __extra(self):
        return 0

    def __getattr__(self, name):
        return name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def unused(self):
        return 4


def same():
    return 1


first_same = same


def same():
    return 2


def outer():
    def inner():
        def innermost():
            return 1

        return innermost()

    def never():
        return 0

    return inner() + (lambda: 1)()


if double:

    def conditional():
        return 1

else:

    def conditional():
        return 2


def generator(most):
    def step(number):
        return number + 1

    number = 0
    while number < most:
        yield number
        number = step(number)


def delegating():
    yield from generator(2)


async def fetch(number):
    await asyncio.sleep(0)
    return number


async def stream():
    for number in range(2):
        yield await fetch(number)


@contextlib.contextmanager
def borrowed():
    yield 1


@typing.overload
def shown(value: int) -> str: ...
@typing.overload
def shown(value: str) -> str: ...
def shown(value):
    return str(value)


@functools.singledispatch
def area(shape):
    return 0


@area.register
def _(shape: int):
    return shape


@area.register
def _(shape: str):
    return len(shape)


@functools.lru_cache
def cached(number):
    return number


@dataclasses.dataclass
class Point:
    x: int
    y: int

    def norm(self):
        return abs(self.x) + abs(self.y)


@dataclasses.dataclass
class Size:
    width: int
    height: int


exec("def generated(): return 1")
made = eval("lambda: 2")
Dynamic = type("Dynamic", (), {"method": lambda self: 1})


class Meta(type):
    def __call__(cls, *arguments):
        return super().__call__(*arguments)


class Made(metaclass=Meta):
    def __new__(cls):
        return super().__new__(cls)

    def __init_subclass__(cls):
        cls.known = True


class Derived(Made):
    def __eq__(self, other):
        return True

    __hash__ = None


def local_classes():
    class Local:
        def method(self):
            return 1

    return Local().method()


def another_local_class():
    class Local:
        def method(self):
            return 2

    return Local().method()


async def main():
    results = [decorated(1), double(1), triple(1), single(1), by_default(1)]
    results += [takes_a_function(), Shop.rate(), Shop.build().total]
    shop = Shop.make()
    shop.total = 2
    with shop as opened:
        results.append(opened.missing)
    results += [first_same(), same(), outer(), conditional(), list(delegating())]
    results += [number async for number in stream()]
    with borrowed() as number:
        results.append(number)
    results += [shown(1), area(1.0), area(1), area("a"), cached(1), cached(1)]
    results += [Point(1, 2).norm(), Size(1, 2).width, generated(), made()]  # noqa: F821
    results += [Dynamic().method(), Derived() == Derived()]
    results += [local_classes(), another_local_class()]
    print(len(results))


asyncio.run(main())


def never_called():
    return lambda: 0
