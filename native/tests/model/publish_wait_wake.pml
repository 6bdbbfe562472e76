/* Publish, seal, wait and wake: the order of loads and stores of docs/formats/queue.md, as a model
 * for Spin. What it proves, what it leaves out and how each fault shows is in
 * docs/internals/memory-ordering.md. Run by tests/model/test_spin.py.
 *
 * Spin's own variables are sequentially consistent, so what a machine may reorder is modelled
 * explicitly. A store enters the buffer of its thread, and the process Memory moves it to the
 * memory at any later time:
 *
 *   relaxed   before or after the thread's other stores, in any order
 *   release   not before any earlier store of the thread; later ones may still overtake it
 *   seq_cst   as release, and no seq_cst load, fence or read-modify-write of the thread passes it
 *
 * A seq_cst load, fence or read-modify-write therefore waits until the buffer of its thread is
 * empty; an acquire load does not. A load sees the memory as it is: no thread here reads a word of
 * its own that may still be in its buffer. Loads are not reordered: every load of the protocol is
 * acquire or seq_cst.
 *
 * A futex call has a full barrier in the kernel: it waits for the buffer, too. FUTEX_WAIT compares
 * with the memory and falls asleep in one step. No sleep times out: the real reader checks again
 * after a second, and with that timeout no fault would ever show.
 *
 * The writer may be killed at any step. A processor does not lose its store buffer with the
 * process: what was stored still drains, and a replacement recovers only after that, since taking
 * the lock that the kernel released orders it later. A dead writer is always replaced: otherwise, a
 * record whose wake-up died with it is found only by the timeout of the reader.
 */

#ifndef READERS
#define READERS 2 /* or 1 */
#endif
#ifndef RECORDS
#define RECORDS 3 /* at most; the writer may stop after any of them */
#endif
#ifndef DEATHS
#define DEATHS 1 /* at most */
#endif
#ifndef BATCHES
#define BATCHES 1 /* 0: every append by itself */
#endif
#ifndef HINTS
#define HINTS 0 /* 1: also (current_segment, write_offset), and the check that uses them */
#endif
#ifndef ENDS
#define ENDS 0 /* 1: also the recorded end of a segment, a clean close, and the checks of both */
#endif
#define SLOTS 2 /* places for records in a segment; the writer may also roll before it is full */
/* Each segment that is left has a record or a PAD, and only a death leaves a PAD. */
#define SEGMENTS (RECORDS + DEATHS)

/* ---- faults: -DFAULT=NAME enables one ---- */
#define FLAG_LOAD_PASSES_COMMIT 1 /* waiters_pending loaded relaxed after a release commit */
#define BELL_HEARD_TOO_LATE 2     /* notify_seq loaded after the check for progress */
#define BELL_BEFORE_COMMIT 3      /* every append rings, perhaps visibly before its commit */
#define SEALED_IS_NO_PROGRESS 4   /* the check for progress reads only the old commit word */
#define CLEAR_AFTER_BELL 5        /* notify_seq incremented, then waiters_pending cleared */
#define NO_BELL_AT_OPENING 6      /* a writer opens without ringing */
#define FLAG_TRUSTED_AT_OPENING 7 /* a writer that opens rings only when waiters_pending is set */
#define NO_SECOND_LOOK 8          /* SEALED seen: leaves without loading the commit again */
#define FLAG_STORE_IN_BUFFER 9    /* waiters_pending = 1 is release: the check may pass it */
#define COMMIT_BEFORE_BODY 10     /* the commit is relaxed */
#define SEAL_BEFORE_NEXT 11       /* SEALED set before the next segment has its name */
#define PAD_WRITTEN_AGAIN 12      /* recovery pads what a predecessor has already padded */
#define OFFSET_BEFORE_COMMIT 13   /* write_offset is relaxed; needs HINTS */
#define END_BEFORE_COMMIT 14      /* the recorded end is relaxed; needs ENDS */
#define END_WITHOUT_SECOND_LOOK 15 /* an end after this place is damage at once; needs ENDS */
/* ---- not faults: as correct as the original ---- */
#define EVERY_APPEND_RINGS 16 /* BELL_BEFORE_COMMIT, but with the increment after the commit */
#define NO_BELL_AT_SEAL 17    /* a sleeper detects the seal with the next record */
#define END_KEPT_AT_OPENING 18 /* a writer appends past the recorded end; needs ENDS */

#ifdef FAULT
#if FAULT == 0
#error "no such fault"
#endif
#else
#define FAULT 0
#endif

/* ---- the memory ---- */
#define COMMIT(segment, slot) ((segment) * SLOTS + (slot)) /* 0, RECORD or PAD */
#define BODY(segment, slot) (SEGMENTS * SLOTS + (segment) * SLOTS + (slot)) /* header and payload */
#define SEALED(segment) (2 * SEGMENTS * SLOTS + (segment))
#define WAITERS (SEGMENTS * (2 * SLOTS + 1))
#define SEGMENT_GEN (WAITERS + 1)
#define CURRENT_SEGMENT (WAITERS + 2)
#define WRITE_OFFSET (WAITERS + 3)
#define END(segment) (WAITERS + 1 + 3 * HINTS + (segment)) /* 0: none; else slot + 1 */
#define WORDS (WAITERS + 1 + 3 * HINTS + ENDS * SEGMENTS)

#define RECORD 1
#define PAD 2
#define PAD_BODY (RECORDS + 1) /* the body of record n is n + 1 */

/* At the very end of a segment there is no commit word: it counts as 0. */
#define COMMIT_AT(segment, slot) (slot < SLOTS -> memory[COMMIT(segment, slot)] : 0)

byte memory[WORDS];
byte segments = 1; /* how many have their name: a rename, visible to all at once */
/* notify_seq: only whether it still has the value that a reader loaded matters. (It wraps after
 * 2^32 rings; no reader goes to sleep that long after its load.) Also true while none waits. */
bool rung[READERS];
bool asleep[READERS]; /* the queue of the futex */
byte records_read[READERS];
bool silent; /* the writer appends nothing more */
bool killed;
#if ENDS
bool locked; /* by a writer; a kernel lock: visible to all at once, released with the process */
#endif

/* ---- store buffers ---- */
#define RELAXED 0
#define RELEASE 1
#define SEQ_CST 1 /* more than release because DRAINED precedes the next seq_cst step */

typedef Store {
    byte word;
    byte value;
    bool release;
};
#define DEPTH (2 * SLOTS + HINTS + ENDS) /* bodies and commits of a batch, write_offset; an end */
Store buffer[DEPTH];
byte buffered;
bool flag_buffered[READERS]; /* a reader's only store: waiters_pending = 1 */

#define DRAINED (buffered == 0)
#define MAY_DRAIN(i) (buffered > i && (i == 0 || !buffer[i].release))

inline store(at, what, order) {
    buffered < DEPTH; /* a full buffer makes its thread wait */
    buffer[buffered].word = at;
    buffer[buffered].value = what;
    buffer[buffered].release = order;
    buffered++
}

inline drain(which) {
    memory[buffer[which].word] = buffer[which].value;
    k = which;
    do
    :: k + 1 < buffered ->
        buffer[k].word = buffer[k + 1].word;
        buffer[k].value = buffer[k + 1].value;
        buffer[k].release = buffer[k + 1].release;
        k++
    :: else -> break
    od;
    buffered--;
    buffer[buffered].word = 0;
    buffer[buffered].value = 0;
    buffer[buffered].release = 0;
    k = 0
}

/* A relaxed store may overtake others, but none here is to a word with another store in the buffer:
 * only bodies are stored relaxed, each once (and what the faults make relaxed; an end is cleared by
 * a successor, before which the buffer has drained). */
active proctype Memory() {
    byte k;
end:
    do
    :: d_step { MAY_DRAIN(0) -> drain(0) }
    :: d_step { MAY_DRAIN(1) -> drain(1) }
    :: d_step { MAY_DRAIN(2) -> drain(2) }
    :: d_step { MAY_DRAIN(3) -> drain(3) }
#if HINTS || ENDS
    :: d_step { MAY_DRAIN(4) -> drain(4) }
#endif
#if HINTS && ENDS
    :: d_step { MAY_DRAIN(5) -> drain(5) }
#endif
    :: d_step { flag_buffered[0] -> memory[WAITERS] = 1; flag_buffered[0] = false }
#if READERS > 1
    :: d_step { flag_buffered[1] -> memory[WAITERS] = 1; flag_buffered[1] = false }
#endif
    od
}

/* ---- the writer ---- */

inline increment_notify() {
    rung[0] = true;
    rung[READERS - 1] = true
}

inline futex_wake_all() {
    d_step {
        DRAINED;
        asleep[0] = false;
        asleep[READERS - 1] = false
    }
}

/* Control::wake_waiters */
inline ring() {
#if FAULT == CLEAR_AFTER_BELL
    d_step { DRAINED -> increment_notify() };
    d_step { store(WAITERS, 0, SEQ_CST) };
#elif FAULT == BELL_BEFORE_COMMIT
    d_step { increment_notify() }; /* relaxed: does not wait for the buffer */
#elif FAULT == EVERY_APPEND_RINGS
    d_step { DRAINED -> increment_notify() };
#else
    d_step { store(WAITERS, 0, SEQ_CST) };
    d_step { DRAINED -> increment_notify() };
#endif
    futex_wake_all()
}

/* Writer::wake_if_waiting */
inline wake_if_waiting() {
    if
#if FAULT == EVERY_APPEND_RINGS || FAULT == BELL_BEFORE_COMMIT
    :: ring()
#elif FAULT == FLAG_LOAD_PASSES_COMMIT
    :: memory[WAITERS] != 0 -> ring()
    :: memory[WAITERS] == 0
#else
    :: DRAINED && memory[WAITERS] != 0 -> ring()
    :: DRAINED && memory[WAITERS] == 0
#endif
    fi
}

inline publish_next() {
    d_step {
        if
        :: segments < segment + 2 -> segments = segment + 2 /* else it exists already */
        :: else
        fi;
        assert(segments <= SEGMENTS)
    }
}

/* Control::publish_position. Only the writer stores the generation. */
inline publish_position(in_segment, at_slot) {
    d_step { store(SEGMENT_GEN, generation | 1, SEQ_CST); generation = generation | 1 };
    d_step { store(CURRENT_SEGMENT, in_segment, RELEASE) };
    d_step { store(WRITE_OFFSET, at_slot, RELEASE) };
    d_step { store(SEGMENT_GEN, generation + 1, SEQ_CST); generation++ }
}

/* Segment::record_end */
inline record_end(in_segment, at_slot) {
#if ENDS
#if FAULT == END_BEFORE_COMMIT
    d_step { store(END(in_segment), at_slot + 1, RELAXED) }
#else
    d_step { store(END(in_segment), at_slot + 1, RELEASE) }
#endif
#else
    skip
#endif
}

/* Writer::roll */
inline roll() {
#if FAULT == SEAL_BEFORE_NEXT
    d_step { DRAINED -> memory[SEALED(segment)] = 1 };
    publish_next();
#else
    publish_next();
#if HINTS
    publish_position(segment + 1, 0);
#endif
    record_end(segment, slot);
    d_step { DRAINED -> memory[SEALED(segment)] = 1 };
#endif
#if FAULT != NO_BELL_AT_SEAL
    wake_if_waiting();
#endif
    d_step { segment++; slot = 0 }
}

/* recovery.cpp: where the log ends. Only it writes these words, so reading them is one step. */
inline find_last_record() {
    d_step {
        DRAINED; /* what the predecessor stored */
        k = 0;
        do
        :: k < SEGMENTS * SLOTS ->
            if
            :: memory[k] == RECORD -> number++; segment = k / SLOTS
            :: else
            fi;
            k++
        :: else -> break
        od;
        k = 0
    }
}

inline find_end_of_segment() {
    d_step {
        DRAINED;
        slot = 0;
        do
        :: COMMIT_AT(segment, slot) == RECORD -> slot++
#if FAULT == PAD_WRITTEN_AGAIN
        :: slot > 0 && COMMIT_AT(segment, slot) == PAD -> slot = SLOTS
#else
        :: COMMIT_AT(segment, slot) == PAD -> slot = SLOTS
#endif
        :: else -> break
        od;
        clean = true;
        k = slot;
        do
        :: k < SLOTS ->
            clean = clean && memory[COMMIT(segment, k)] == 0 && memory[BODY(segment, k)] == 0;
            k++
        :: else -> break
        od;
        k = 0
    }
}

/* write_pad: one PAD to the end of the segment */
inline pad_rest() {
    d_step { store(COMMIT(segment, slot), 0, SEQ_CST) };
    d_step { store(BODY(segment, slot), PAD_BODY, RELAXED) };
    d_step { store(COMMIT(segment, slot), PAD, SEQ_CST) }
}

/* recovery.cpp, go_on_after and seal_below; then the end of Writer's constructor */
inline open_writer() {
    find_last_record();
    do
    :: find_end_of_segment();
        if
        :: clean && !memory[SEALED(segment)] -> clean = false; break
        :: else ->
            publish_next();
            if
            :: clean
            :: else -> pad_rest(); slot = SLOTS
            fi;
            record_end(segment, slot);
            d_step { segment++; slot = 0 }
        fi
    od;
#if ENDS && FAULT != END_KEPT_AT_OPENING
    skip; /* no jump may lead into a d_step */
    d_step { store(END(segment), 0, RELEASE) };
#endif
#if HINTS
    generation = memory[SEGMENT_GEN]; /* odd when the predecessor died in between */
    publish_position(segment, slot);
#endif
    below = 0;
    do
    :: below < segment -> d_step { DRAINED -> memory[SEALED(below)] = 1; below++ }
    :: else -> break
    od;
    below = 0;
#if FAULT == FLAG_TRUSTED_AT_OPENING
    wake_if_waiting()
#elif FAULT != NO_BELL_AT_OPENING
    d_step { DRAINED -> increment_notify() };
    futex_wake_all()
#endif
}

active proctype Writer() {
    byte segment, slot, number; /* the place of the next record, and its number */
    byte below, k;
    bool clean;
#if HINTS
    byte generation;
#endif
#if ENDS
    byte closes_left = 1;
#endif
life:
    {
#if ENDS
        DRAINED;
        locked = true;
#endif
        open_writer();
        do
        :: number < RECORDS ->
            /* A record fits the rest of the segment, or it does not; an empty segment holds any. */
            if
            :: slot < SLOTS
            :: slot > 0 -> roll()
            fi;
            /* A batch: bodies and release commits, then one seq_cst fence, then the check of the
             * flag. A batch of one is the ordinary append: a seq_cst commit and the seq_cst load
             * after it are ordered as by the fence. */
            do
            :: d_step { store(BODY(segment, slot), number + 1, RELAXED) };
#if FAULT == COMMIT_BEFORE_BODY
                d_step { store(COMMIT(segment, slot), RECORD, RELAXED); slot++; number++ };
#else
                d_step { store(COMMIT(segment, slot), RECORD, RELEASE); slot++; number++ };
#endif
                if
                :: BATCHES && number < RECORDS && slot < SLOTS
                :: break
                fi
            od;
#if HINTS
            skip;
#if FAULT == OFFSET_BEFORE_COMMIT
            d_step { store(WRITE_OFFSET, slot, RELAXED) };
#else
            d_step { store(WRITE_OFFSET, slot, RELEASE) };
#endif
#endif
            wake_if_waiting()
#if ENDS
        /* Writer::close; its syncs are system calls. A successor opens, or none does. */
        :: closes_left > 0 ->
            closes_left--;
            record_end(segment, slot);
            d_step { DRAINED -> locked = false };
            if
            :: d_step { segment = 0; slot = 0; number = 0 };
#if HINTS
                generation = 0;
#endif
                goto life
            :: silent = true; break
            fi
#endif
        :: silent = true; break
        od;
end_silent:
        false
    } unless {
        d_step { killed ->
            killed = false;
            silent = false;
#if ENDS
            locked = false;
#endif
            segment = 0;
            slot = 0;
            number = 0;
            below = 0;
#if HINTS
            generation = 0;
#endif
            clean = false
        }
    };
    goto life
}

/* At any step; what can happen without a death happens before it. */
active proctype Killer() {
    byte left = DEATHS;
end:
    do
    :: d_step { left > 0 && !killed -> killed = true; left-- }
    od
}

/* ---- readers ---- */

/* Control::position, Reader::check_hidden_record: the writer has passed this place and nothing is
 * committed here. That is damage, which must never be reported for a log without any. All loads are
 * acquire. */
inline check_hidden_record() {
    if
    :: moving_on
    :: !moving_on ->
        generation = memory[SEGMENT_GEN];
        hinted_segment = memory[CURRENT_SEGMENT];
        hinted_slot = memory[WRITE_OFFSET];
        d_step {
            passed = generation == memory[SEGMENT_GEN] && generation % 2 == 0 &&
                hinted_segment == segment && hinted_slot > slot;
            generation = 0;
            hinted_segment = 0;
            hinted_slot = 0
        };
        d_step {
            corrupt_record = passed && slot < SLOTS && COMMIT_AT(segment, slot) == 0;
            assert(!corrupt_record);
            passed = false
        }
    fi
}

/* Reader::goes_on_after_end: if no writer lives, an end recorded after this place means that
 * records are lost. That must never be reported for a log that has lost none. */
inline check_end() {
    if
    :: locked
    :: !locked ->
        lost = memory[END(segment)] > slot + 1;
#if FAULT == END_WITHOUT_SECOND_LOOK
        d_step {
            corrupt_record = lost;
            assert(!corrupt_record);
            lost = false
        }
#else
        if
        :: memory[SEALED(segment)] || COMMIT_AT(segment, slot) != 0
        :: else ->
            d_step {
                corrupt_record = lost && !locked;
                assert(!corrupt_record)
            }
        fi;
        lost = false
#endif
    fi
}

proctype Reader(byte me) {
    byte segment, slot;
    bool was_sealed;
    bool moving_on; /* in the check at the end of Reader::wait that follows a sealed segment */
    bool next_record_whole, segment_missing, corrupt_record; /* names of assertions */
#if HINTS
    byte generation, hinted_segment, hinted_slot;
    bool passed;
#endif
#if ENDS
    bool lost;
#endif

look:
    skip; /* not atomic: a jump between two atomic blocks would make one step of two loads */
    /* Reader::look. The body is read with the commit: it can only become more complete. */
    atomic {
        if
        :: COMMIT_AT(segment, slot) == RECORD ->
            /* In order, without duplicates or gaps, and not before it was complete. */
            next_record_whole = memory[BODY(segment, slot)] == records_read[me] + 1;
            assert(next_record_whole);
            next_record_whole = false;
            records_read[me]++;
            slot++;
            moving_on = false;
            rung[me] = true;
            goto look
        :: COMMIT_AT(segment, slot) == PAD -> slot = SLOTS; goto look
        :: else
        fi
    }
    /* Reader::leave_segment */
    if
    :: memory[SEALED(segment)]
    :: !memory[SEALED(segment)] -> goto nothing
    /* passed_over(): the hint that leads to a check may have any value at any time. */
    :: !memory[SEALED(segment)] ->
        if
        :: segments > segment + 1 && memory[COMMIT(segment + 1, 0)] != 0
        :: else -> goto nothing
        fi
    fi;
#if FAULT != NO_SECOND_LOOK
    if
    :: COMMIT_AT(segment, slot) != 0 -> goto look
    :: COMMIT_AT(segment, slot) == 0
    fi;
    atomic {
        segment_missing = segments < segment + 2;
        assert(!segment_missing);
        corrupt_record = slot < SLOTS && memory[BODY(segment, slot)] != 0;
        assert(!corrupt_record)
    }
#if ENDS
    d_step { /* Reader::check_sealed_end */
        corrupt_record = slot < SLOTS && memory[END(segment)] > slot + 1;
        assert(!corrupt_record)
    };
#endif
#endif
    atomic {
        segment++;
        slot = 0;
        goto look
    }

nothing: /* Reader::wait, once spinning is over */
#if ENDS
    check_end();
#endif
#if HINTS
    check_hidden_record();
#endif
    atomic {
        if
        :: moving_on && memory[SEALED(segment)] -> moving_on = false; goto doze
        :: moving_on && !memory[SEALED(segment)] -> moving_on = false; rung[me] = true; goto look
        :: else
        fi;
#if FAULT != BELL_HEARD_TOO_LATE
        rung[me] = false; /* heard = notify_seq, acquire */
#endif
        flag_buffered[me] = true /* waiters_pending = 1, seq_cst; a buffered store is invisible */
    }
    /* progress_made(): seq_cst loads. Only the first has to wait: the buffer stays empty. */
    d_step {
#if FAULT != FLAG_STORE_IN_BUFFER
        !flag_buffered[me];
#endif
        was_sealed = memory[SEALED(segment)]
    }
    atomic {
        if
        :: COMMIT_AT(segment, slot) != 0 -> was_sealed = false; rung[me] = true; goto look
        :: else
        fi
    }
#if FAULT != SEALED_IS_NO_PROGRESS
    atomic {
        if
        :: memory[SEALED(segment)] && was_sealed -> was_sealed = false; moving_on = true; goto look
        :: memory[SEALED(segment)] && !was_sealed -> rung[me] = true; goto look
        :: else
        fi
    }
#endif
#if FAULT == BELL_HEARD_TOO_LATE
    rung[me] = false;
#endif

sleep: /* futex_wait: the kernel compares and enqueues under one lock */
    atomic {
        !flag_buffered[me];
        was_sealed = false;
        if
        :: rung[me] -> goto look
        :: else -> asleep[me] = true
        fi
    }
end_asleep:
    atomic { !asleep[me] -> rung[me] = true; goto look }

doze:
    skip; /* not atomic, as above */
    goto sleep
}

/* ---- when nothing moves any more, every reader has read everything ---- */

#define QUIET (silent && !killed && DRAINED && asleep[0] && asleep[READERS - 1])

init {
    byte k, committed;
    bool asleep_for_ever; /* before a committed record */
    atomic {
        rung[0] = true;
        rung[READERS - 1] = true;
        run Reader(0);
#if READERS > 1
        run Reader(1)
#endif
    }
end:
    do
    :: d_step {
            QUIET;
            k = 0;
            do
            :: k < SEGMENTS * SLOTS -> committed = committed + (memory[k] == RECORD); k++
            :: else -> break
            od;
            asleep_for_ever = records_read[0] < committed || records_read[READERS - 1] < committed;
            assert(!asleep_for_ever);
            k = 0;
            committed = 0
        }
    od
}
