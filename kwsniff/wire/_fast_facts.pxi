# What walk.py finds in a body, found while the bytes go by; and the walk that does nothing else.

cdef struct Learned:
    const Byte* topic_id
    Text topic

cdef struct Work:
    Sink sink
    Out out

cdef enum:
    FEW = 16
    KEPT_ROOM = 1 << 20

cdef Work* _spare = NULL


cdef Work* borrow_work() noexcept:
    """One is kept, for allocating it costs as much as a small body."""
    global _spare
    cdef Work* work = _spare
    if work == NULL:
        return <Work*>calloc(1, sizeof(Work))
    _spare = NULL
    return work


cdef void give_back(Work* work) noexcept:
    global _spare
    if _spare != NULL or not reset_sink(&work.sink) or work.out.room > KEPT_ROOM:
        free_sink(&work.sink)
        free(work.out.text)
        free(work)
        return
    work.out.size = 0
    _spare = work


cdef bint reset_sink(Sink* sink) noexcept:
    """False: it has grown too large to be kept."""
    sink.group.at = NULL
    sink.throttle = 0
    return (
        empty(&sink.topics) and empty(&sink.topic_ids) and empty(&sink.errors) and empty(&sink.records)
        and empty(&sink.learned)
    )


cdef bint empty(Some* some) noexcept:
    some.count = 0
    return some.room <= KEPT_ROOM


cdef void free_sink(Sink* sink) noexcept:
    free(sink.topics.items)
    free(sink.topic_ids.items)
    free(sink.errors.items)
    free(sink.records.items)
    free(sink.learned.items)


cdef void* add(Some* some, Py_ssize_t item_size) noexcept nogil:
    """Room for one more item; NULL: there is none. room: bytes."""
    cdef Py_ssize_t room
    cdef void* items
    if (some.count + 1) * item_size > some.room:
        room = max(16 * item_size, 2 * some.room)
        items = realloc(some.items, room)
        if items == NULL:
            return NULL
        some.items = items
        some.room = room
    some.count += 1
    return <char*>some.items + (some.count - 1) * item_size


cdef int note_text(const Op* op, const Byte* at, Py_ssize_t size, Sink* sink, Nearest* own) noexcept nogil:
    """A topic or group was met."""
    cdef Text* topics
    cdef Text* place
    cdef Py_ssize_t index
    if size <= 0:
        return 0
    if op.fact == GROUP:
        if sink.group.at == NULL:
            sink.group.at = at
            sink.group.size = size
        return 0
    if op.fact != TOPIC:
        return 0
    if op.scalar:
        own.topic.at = at
        own.topic.size = size
    topics = <Text*>sink.topics.items
    if sink.topics.count <= FEW:
        for index in range(sink.topics.count):
            if topics[index].size == size and memcmp(topics[index].at, at, size) == 0:
                return 0
    place = <Text*>add(&sink.topics, sizeof(Text))
    if place == NULL:
        return -1
    place.at = at
    place.size = size
    return 0


cdef int note_fixed(const Op* op, const Byte* at, Sink* sink, Nearest* own) noexcept nogil:
    """A topic id, error code, partition or throttle time was met."""
    cdef const Byte** place
    cdef FoundError* error
    if op.fact == PARTITION:
        if op.scalar:
            own.partition = <int32_t>load32(at)
            own.has_partition = True
    elif op.fact == ERROR_CODE:
        if load16(at) == 0:
            return 0
        error = <FoundError*>add(&sink.errors, sizeof(FoundError))
        if error == NULL:
            return -1
        memset(error, 0, sizeof(FoundError))
        error.code = <int16_t>load16(at)
    elif op.fact == TOPIC_ID:
        if memcmp(at, ZERO_ID, 16) == 0:
            return 0
        if op.scalar:
            own.topic_id = at
        place = <const Byte**>add(&sink.topic_ids, sizeof(void*))
        if place == NULL:
            return -1
        place[0] = at
    elif op.fact == THROTTLE:
        sink.throttle = <int32_t>load32(at)
    return 0


cdef int note_records(
    const Op* op, const Byte* at, Py_ssize_t size, Py_ssize_t splice, Sink* sink
) noexcept nogil:
    cdef FoundRecords* place = <FoundRecords*>add(&sink.records, sizeof(FoundRecords))
    if place == NULL:
        return -1
    memset(place, 0, sizeof(FoundRecords))
    place.splice = splice
    place.at = at
    place.size = size
    place.key = op.key
    return 0


cdef inline void resolve(Nearest* near, const Nearest* own) noexcept nogil:
    """What was found within a struct has the struct's topic and partition, unless nearer ones."""
    if not near.has_partition and own.has_partition:
        near.partition = own.partition
        near.has_partition = True
    if near.topic.at == NULL and near.topic_id == NULL:
        near.topic = own.topic
        near.topic_id = own.topic_id


cdef int close_struct(
    const Shape* shape, Sink* sink, const Nearest* own, Py_ssize_t errors, Py_ssize_t records
) noexcept nogil:
    """A struct ends; errors, records: how many there were when it began."""
    cdef Py_ssize_t index
    cdef Learned* place
    for index in range(errors, sink.errors.count):
        resolve(&(<FoundError*>sink.errors.items)[index].near, own)
    for index in range(records, sink.records.count):
        resolve(&(<FoundRecords*>sink.records.items)[index].near, own)
    if shape.learns and own.topic_id != NULL and own.topic.at != NULL:
        place = <Learned*>add(&sink.learned, sizeof(Learned))
        if place == NULL:
            return -1
        place.topic_id = own.topic_id
        place.topic = own.topic
    return 0


# What was found, as Python values.

cdef tuple NOTHING_FOUND = ((), (), None, (), 0, (), ())


cdef made_facts(const Sink* sink, const Byte* start):
    if (
        not sink.topics.count and not sink.topic_ids.count and not sink.errors.count
        and not sink.records.count and sink.group.at == NULL and not sink.throttle
    ):
        return NOTHING_FOUND
    return (
        _topics(sink) if sink.topics.count else (),
        _topic_ids(sink) if sink.topic_ids.count else (),
        _text(sink.group),
        _errors(sink) if sink.errors.count else (),
        sink.throttle,
        _records(sink, start) if sink.records.count else (),
        _learned(sink) if sink.learned.count else (),
    )


cdef _text(Text text):
    if text.at == NULL:
        return None
    return text.at[:text.size].decode("utf-8", "surrogateescape")


cdef _id(const Byte* at):
    return None if at == NULL else topic_id_text(at)


cdef topic_id_text(const Byte* at):
    return _owned(decode_uuid(at))


cdef _owned(PyObject* made):
    if made == NULL:
        raise_current()
    found = <object>made
    Py_DECREF(made)
    return found


cdef tuple _topics(const Sink* sink):
    cdef const Text* topics = <const Text*>sink.topics.items
    cdef Py_ssize_t index
    if sink.topics.count == 1:
        return (_text(topics[0]),)
    found = [_text(topics[index]) for index in range(sink.topics.count)]
    return tuple(dict.fromkeys(found)) if sink.topics.count > FEW else tuple(found)


cdef tuple _topic_ids(const Sink* sink):
    cdef const Byte** ids = <const Byte**>sink.topic_ids.items
    cdef Py_ssize_t index
    return tuple(dict.fromkeys([_id(ids[index]) for index in range(sink.topic_ids.count)]))


cdef _near_topic(const Nearest* near, const Nearest* last, text):
    """The topic's name; `text` if the last one had the same, as it has within a topic's partitions."""
    return text if near.topic.at == last.topic.at else _text(near.topic)


cdef tuple _errors(const Sink* sink):
    cdef const FoundError* error
    cdef Nearest none
    cdef const Nearest* last = &none
    cdef Py_ssize_t index
    memset(&none, 0, sizeof(none))
    topic = None
    found = []
    for index in range(sink.errors.count):
        error = &(<const FoundError*>sink.errors.items)[index]
        topic = _near_topic(&error.near, last, topic)
        last = &error.near
        partition = error.near.partition if error.near.has_partition else None
        found.append((error.code, topic, _id(error.near.topic_id), partition))
    return tuple(found)


cdef tuple _records(const Sink* sink, const Byte* start):
    cdef const FoundRecords* place
    cdef Nearest none
    cdef const Nearest* last = &none
    cdef Py_ssize_t index
    memset(&none, 0, sizeof(none))
    topic = None
    found = []
    for index in range(sink.records.count):
        place = &(<const FoundRecords*>sink.records.items)[index]
        topic = _near_topic(&place.near, last, topic)
        last = &place.near
        found.append((
            place.splice, place.at - start, place.size, <object>place.key, topic, _id(place.near.topic_id)
        ))
    return tuple(found)


cdef tuple _learned(const Sink* sink):
    cdef const Learned* places = <const Learned*>sink.learned.items
    cdef Py_ssize_t index
    pairs = [(_id(places[index].topic_id), _text(places[index].topic)) for index in range(sink.learned.count)]
    return tuple(dict.fromkeys(pairs))
