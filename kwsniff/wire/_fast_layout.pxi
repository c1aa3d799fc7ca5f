# What the machine runs: Layouts as C structs.

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    void Py_INCREF(PyObject*)
    void Py_DECREF(PyObject*)
    void Py_XDECREF(PyObject*)
    PyObject* PyErr_Occurred()
    void PyErr_Clear()

cdef enum Kind:
    BOOL
    INT8
    INT16
    INT32
    INT64
    UINT16
    UINT32
    FLOAT64
    UUID
    STRING
    BYTES
    STRUCT
    RUN  # of adjacent fixed-size fields that nobody asks for

cdef enum Fact:
    NO_FACT
    TOPIC
    TOPIC_ID
    GROUP
    ERROR_CODE
    PARTITION
    THROTTLE

cdef enum Treatment:
    NOTHING
    RECORDS
    SLICE
    SECRET
    FALLBACK

cdef enum Fresh:  # how a default is had
    SHARED
    NEW_LIST
    COPIED
    MADE

cdef enum Way:  # how a field comes into its body
    SCALAR  # of fixed size
    TEXT
    OTHER  # bytes, a struct
    MANY
    ABSENT  # tagged: its default, until the tag section tells more

cdef enum:
    MAX_STRING = 0x7FFF
    MAX_TAGGED = 16
    TEXT_ROOM = 32
    MAX_SHARING = 5  # keys; from 6 on PyDict_Copy takes half as long again for shared ones
    SHARED_KEYS = 30  # that CPython has room for in a class

_KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "uint16": UINT16,
    "uint32": UINT32, "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": BYTES,
    "struct": STRUCT,
}
_FACTS = {
    "": NO_FACT, "topicName": TOPIC, "topicId": TOPIC_ID, "groupId": GROUP, "errorCode": ERROR_CODE,
    "partitionIndex": PARTITION, "throttle": THROTTLE,
}
_TREATMENTS = {"": NOTHING, "records": RECORDS, "slice": SLICE, "secret": SECRET, "fallback": FALLBACK}

cdef struct Op:
    Byte kind
    Byte way
    Byte array
    Byte nullable
    Byte compact
    Byte tagged
    Byte fact
    Byte scalar
    Byte treatment
    Byte facts_below
    Byte slot  # among the tagged fields of its struct
    uint32_t tag
    int32_t size
    int32_t least
    PyObject* key
    Byte fresh
    PyObject* default
    PyObject* make
    Shape* below
    const char* text  # of JSON: `{"key":` or `,"key":`
    Py_ssize_t text_size
    const char* default_text
    Py_ssize_t default_size
    const char* records_text  # `,"recordsSizeInBytes":`
    Py_ssize_t records_size
    const char* summary_text  # `,"recordsSummary":`
    Py_ssize_t summary_size
    const char* omitted  # the default as it is written; NULL: it cannot be
    Py_ssize_t omitted_size

cdef struct Shape:
    int count
    Byte flexible
    Byte learns  # tells both id and name of a topic
    Op* ops
    int tagged_count
    Op** tagged  # by tag
    int skip_count
    Op* skips
    int32_t fixed_size  # of the whole struct; 0: not fixed, or somebody asks for a field of it
    PyObject* template  # every key; the defaults of tagged fields
    int place  # among the Traces of a decode: one for itself, behind it one for each field
    int places  # where those of the next shape begin; of the outermost: how many there are


cdef Shape* build_shape(layout, list kept, list shapes) except NULL:
    """Everything allocated is in `shapes` at once (to be freed), what it points to in Python in `kept`."""
    cdef int place = (<Shape*><size_t>shapes[len(shapes) - 1]).places if shapes else 0
    cdef Shape* shape = <Shape*>calloc(1, sizeof(Shape))
    if shape == NULL:
        raise MemoryError
    shapes.append(<size_t>shape)
    steps = layout.steps
    shape.place = place
    shape.places = place + 1 + <int>len(steps)
    shape.flexible = layout.flexible
    shape.ops = <Op*>calloc(max(1, len(steps)), sizeof(Op))
    shape.skips = <Op*>calloc(max(1, len(steps)), sizeof(Op))
    shape.tagged = <Op**>calloc(max(1, len(steps)), sizeof(Op*))
    if shape.ops == NULL or shape.skips == NULL or shape.tagged == NULL:
        raise MemoryError
    template = {}
    cdef Op* op
    for index, step in enumerate(steps):
        op = &shape.ops[index]
        build_op(op, step, index == 0, kept, shapes)
        template[<object>op.key] = <object>op.default if op.tagged and op.fresh == SHARED else None
        if op.tagged:
            op.slot = <Byte>shape.tagged_count
            shape.tagged_count += 1
        shape.count = index + 1
    if shape.tagged_count > MAX_TAGGED:
        raise ValueError("more tagged fields than the machine has room for")
    template = _key_sharing(template)
    kept.append(template)
    shape.template = <PyObject*>template
    _sort_tagged(shape)
    _build_skips(shape)
    facts = {step.fact for step in steps if step.scalar}
    shape.learns = {"topicName", "topicId"} <= facts
    if place == 0:
        shape.places = (<Shape*><size_t>shapes[len(shapes) - 1]).places
    return shape


cdef int build_op(Op* op, step, bint first, list kept, list shapes) except -1:
    op.kind = _KINDS[step.type]
    op.array = step.array
    op.nullable = step.nullable
    op.compact = step.compact
    op.tagged = step.tag >= 0
    op.tag = max(0, step.tag)
    if op.tagged:
        op.way = ABSENT
    elif op.array:
        op.way = MANY
    else:
        op.way = SCALAR if step.size else TEXT if op.kind == STRING else OTHER
    op.fact = _FACTS[step.fact]
    op.scalar = step.scalar
    op.treatment = _TREATMENTS[step.treatment]
    op.facts_below = step.facts_below
    op.size = step.size
    op.least = max(1, step.least)
    key = _interned(step.key)
    default, make = step.default, step.make
    lead = "{" if first else ","
    texts = [f'{lead}"{key}":', f'{lead}"{key}SizeInBytes":', f',"{key}Summary":']
    op.text, op.records_text, op.summary_text = NULL, NULL, NULL
    encoded = [text.encode() for text in texts] + [step.default_json]
    kept += [key, default, make, encoded]
    op.key = <PyObject*>key
    op.default = <PyObject*>default
    op.make = <PyObject*>make
    if isinstance(default, list):
        op.fresh = NEW_LIST
    elif isinstance(default, dict):
        flat = not any(isinstance(value, (list, dict)) for value in default.values())
        op.fresh = COPIED if flat else MADE
        if flat:
            shared = _key_sharing({_interned(name): value for name, value in default.items()})
            kept.append(shared)
            op.default = <PyObject*>shared
    encoded.append(encoded[0].ljust(TEXT_ROOM))
    op.text, op.text_size = encoded[4], len(encoded[0])
    op.records_text, op.records_size = encoded[1], len(encoded[1])
    op.summary_text, op.summary_size = encoded[2], len(encoded[2])
    op.default_text, op.default_size = encoded[3], len(encoded[3])
    if step.below is not None:
        op.below = build_shape(step.below, kept, shapes)
    omitted = default_bytes(op, default)
    if omitted is not None:
        kept.append(omitted)
        op.omitted, op.omitted_size = omitted, len(omitted)
    return 0


cdef dict _key_sharing(dict template):
    """The same dict; a small one such that its copies share its keys (PEP 412), which halves their memory.

    Larger ones are not: CPython copies what they do not share faster. Each gets a class of its own, because a
    class has one set of shared keys. It leaves room for more keys than its instances have, less with each.
    """
    if len(template) > MAX_SHARING:
        return template
    holding = type("Body", (), {})
    for _ in range(SHARED_KEYS):
        holder = holding()
        for key, value in template.items():
            setattr(holder, key, value)
    return holder.__dict__


def _interned(str key):
    from sys import intern

    return intern(key)


cdef object default_bytes(Op* op, default):
    cdef Out out
    memset(&out, 0, sizeof(out))
    try:
        if encode_field(op, <PyObject*>default, &out) < 0:
            PyErr_Clear()
            return None
        return out.text[:out.size] if out.size else b""
    finally:
        free(out.text)


cdef void _sort_tagged(Shape* shape) noexcept:
    cdef int count = 0, place
    for index in range(shape.count):
        if not shape.ops[index].tagged:
            continue
        place = count
        while place > 0 and shape.tagged[place - 1].tag > shape.ops[index].tag:
            shape.tagged[place] = shape.tagged[place - 1]
            place -= 1
        shape.tagged[place] = &shape.ops[index]
        count += 1


cdef void _build_skips(Shape* shape) noexcept:
    """The untagged ops, with runs of fixed-size fields that nobody asks for in one."""
    cdef Op* op
    cdef Op* last = NULL
    for index in range(shape.count):
        op = &shape.ops[index]
        if op.tagged:
            continue
        if op.size and not op.array and not op.fact:
            if last != NULL and last.kind == RUN:
                last.size += op.size
                continue
            last = &shape.skips[shape.skip_count]
            last.kind = RUN
            last.size = op.size
        else:
            last = &shape.skips[shape.skip_count]
            last[0] = op[0]
        shape.skip_count += 1
    if shape.skip_count == 1 and shape.skips[0].kind == RUN and not shape.flexible:
        shape.fixed_size = shape.skips[0].size


cdef void free_shape(Shape* shape) noexcept:
    free(shape.ops)
    free(shape.skips)
    free(shape.tagged)
    free(shape)


cdef inline Op* find_tag(const Shape* shape, uint32_t tag) noexcept nogil:
    cdef int index
    for index in range(shape.tagged_count):
        if shape.tagged[index].tag == tag:
            return shape.tagged[index]
    return NULL
