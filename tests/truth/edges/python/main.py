import shop.lists
from shop import lists as l
from shop.lists import length as size, Base


def helper(n):  #: helper
    return n + 1


def twice(n):  #: twice
    return helper(helper(n))  #= helper


def apply(f, n):  #: apply
    return f(n)  #= twice helper


def shadowed(helper):  #: shadowed
    return helper(1)  #= twice


def rebound():  #: rebound
    twice = helper
    return twice(1)  #= helper


class Shape(Base):
    def __init__(self, side):  #: Shape.__init__
        super().__init__()  #= Base.__init__
        self.side = side
        self.check()  #= Square.check

    def check(self):  #: Shape.check
        pass

    def area(self):  #: Shape.area
        return self.shared()  #= Base.shared

    @classmethod
    def make(cls):  #: Shape.make
        return cls(1)  #= Square.__init__

    @staticmethod
    def unit():  #: Shape.unit
        return 1

    def units(self):  #: Shape.units
        return Shape.unit() + self.unit()  #= Shape.unit


class Square(Shape):
    def __init__(self, side):  #: Square.__init__
        super().__init__(side)  #= Shape.__init__

    def check(self):  #: Square.check
        return self.area()  #= Shape.area


def outer():  #: outer
    def helper():  #: outer.helper
        return 1

    return helper() + (lambda: inner())()  #= outer.helper inner


def inner():  #: inner
    return 2


if helper:

    def either():  #: either.first
        return 1

else:

    def either():  #: either.second
        return 2


def redefined():  #: redefined.first
    return 1


def redefined():  #: redefined.second
    return 2


def main():  #: main
    square = Square.make()  #= Shape.make
    other = Square(2)  #= Square.__init__
    total = square.area() + other.units()  #= Shape.area Shape.units
    total += apply(twice, 1) + apply(helper, 1)  #= apply
    total += shadowed(twice) + rebound() + outer()  #= shadowed rebound outer
    total += shop.lists.length([]) + l.length([1]) + size([2])  #= lists.length
    total += either() + redefined()  #= either.first redefined.second
    total += sum(helper(n) for n in range(2))  #= helper
    return total


main()  #= main
