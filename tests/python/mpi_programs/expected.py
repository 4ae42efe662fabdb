"""What programs of several processes share."""


def raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} raised nothing")
