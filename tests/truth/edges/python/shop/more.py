def counted(items):  #: counted
    return len(items)
