from .more import counted as helper


def length(items):  #: lists.length
    return helper(items)  #= counted


class Base:
    def __init__(self):  #: Base.__init__
        pass

    def shared(self):  #: Base.shared
        return length([])  #= lists.length
