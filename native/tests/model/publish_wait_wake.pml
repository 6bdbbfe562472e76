/* Publish, seal, wait and wake: the order of loads and stores of docs/formats/queue.md, as a model for
 * Spin. What it proves, what it leaves out and how each fault shows: docs/internals/memory-ordering.md.
 * Run by tests/model/test_spin.py.
 *
 * Spin's own variables are sequentially consistent, so what a machine may reorder is written out. A store
 * enters its thread's buffer, and the process Memory takes it to the memory at any later time:
 *
 *   relaxed   before or after the thread's other stores, in any order
 *   release   not before any earlier store of the thread; later ones may still overtake it
 *   seq_cst   as release, and no seq_cst load, fence or read-modify-write of the thread passes it
 *
 * A seq_cst load, fence or read-modify-write therefore waits until its thread's buffer is empty; an acquire
 * load does not. A load sees the memory as it is: no thread here reads a word of its own that may still be
 * in its buffer. Loads are not reordered: every one of the protocol's is acquire or seq_cst.
 *
 * A futex call has a full barrier in the kernel: it waits for the buffer too. FUTEX_WAIT compares with the
 * memory and falls asleep in one step. Nobody's sleep times out: the real reader looks again after a
 * second, and with that no fault would ever show.
 *
 * The writer may be killed at any step. A processor does not lose its store buffer with the process: what
 * was stored still drains, and only then does a replacement recover, since taking the lock that the kernel
 * released orders it behind. A dead writer is always replaced: without that, a record whose wake-up died
 * with it is found by the reader's timeout alone.
 */

#ifndef READERS
#define READERS 2 /* or 1 */
#endif
#ifndef RECORDS
#define RECORDS 3 /* at most; the writer may fall silent after any of them */
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
#define ENDS 0 /* 1: also the recorded end of a segment, a clean close, and the checks that use them */
#endif
#define SLOTS 2 /* places for records in a segment; the writer may also roll before it is full */
/* Each segment that is left holds a record or a PAD, and only a death leaves a PAD. */
#define SEGMENTS (RECORDS + DEATHS)

/* ---- faults: -DFAULT=NAME puts one back ---- */
#define FLAG_LOAD_PASSES_COMMIT 1 /* waiters_pending loaded relaxed behind a release commit */
#define BELL_HEARD_TOO_LATE 2     /* notify_seq loaded after the look for progress */
#define BELL_BEFORE_COMMIT 3      /* every append rings, and the increment may be seen before the commit */
#define SEALED_IS_NO_PROGRESS 4   /* the look for progress sees only the old segment's commit word */
#define CLEAR_AFTER_BELL 5        /* notify_seq incremented, then waiters_pending cleared */
#define NO_BELL_AT_OPENING 6      /* a writer opens without ringing */
#define FLAG_TRUSTED_AT_OPENING 7 /* a writer that opens rings only when waiters_pending is set */
#define NO_SECOND_LOOK 8          /* SEALED seen: the segment is left without loading the commit again */
#define FLAG_STORE_IN_BUFFER 9    /* the reader's waiters_pending = 1 is release: its look may pass it */
#define COMMIT_BEFORE_BODY 10     /* the commit is relaxed */
#define SEAL_BEFORE_NEXT 11       /* SEALED set before the next segment has its name */
#define PAD_WRITTEN_AGAIN 12      /* recovery pads what a predecessor has padded already */
#define OFFSET_BEFORE_COMMIT 13   /* write_offset is relaxed; needs HINTS */
#define END_BEFORE_COMMIT 14      /* the recorded end is relaxed; needs ENDS */
#define END_WITHOUT_SECOND_LOOK 15 /* an end beyond this place is damage at once; needs ENDS */
/* ---- no faults: as right as the original ---- */
#define EVERY_APPEND_RINGS 16 /* BELL_BEFORE_COMMIT, but with the increment after the commit */
#define NO_BELL_AT_SEAL 17    /* a sleeper learns of the seal with the next record */
#define END_KEPT_AT_OPENING 18 /* a writer appends past the end that its predecessor recorded; needs ENDS */

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
#define END(segment) (WAITERS + 1 + 3 * HINTS + (segment)) /* 0: none; else the slot that would follow + 1 */
#define WORDS (WAITERS + 1 + 3 * HINTS + ENDS * SEGMENTS)

#define RECORD 1
#define PAD 2
#define PAD_BODY (RECORDS + 1) /* the body of record n is n + 1 */

/* At the very end of a segment there is no commit word: it counts as 0. */
#define COMMIT_AT(segment, slot) (slot < SLOTS -> memory[COMMIT(segment, slot)] : 0)

byte memory[WORDS];
byte segments = 1; /* how many have their name: a rename, seen by all at once */
/* notify_seq: of its value only this matters, whether it is still what a reader heard. (It wraps after 2^32
 * rings; nobody hears one and goes to sleep that much later.) True also while nobody listens. */
bool rung[READERS];
bool asleep[READERS]; /* the queue of the futex */
byte records_read[READERS];
bool silent; /* the writer has nothing more to say */
bool killed;
#if ENDS
bool locked; /* by a writer; the kernel's, seen by all at once, and let go of with the process */
#endif

/* ---- store buffers ---- */
#define RELAXED 0
#define RELEASE 1
#define SEQ_CST 1 /* what makes it more than release is that DRAINED comes before the next seq_cst step */

typedef Store {
    byte word;
    byte value;
    bool release;
};
#define DEPTH (2 * SLOTS + HINTS + ENDS) /* what a batch can have in it: bodies, commits, write_offset; an end */
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

/* A relaxed store may overtake, but none here is to a word that has another in the buffer: only bodies
 * are stored relaxed, each once (and what the faults make so; an end is taken back by a successor, for which
 * the buffer has drained). */
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
        :: segments < segment + 2 -> segments = segment + 2 /* else prepared ahead, or by a predecessor */
        :: else
        fi;
        assert(segments <= SEGMENTS)
    }
}

/* Control::publish_position. The generation is the writer's own word: nobody else stores it. */
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

/* recovery.cpp: where the log ends. Nobody else writes these words, so looking at them is one step. */
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

/* recovery.cpp, go_on_behind and seal_below; then the end of Writer's constructor */
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
    byte segment, slot, number; /* where the next record goes, and its number */
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
            /* A batch: bodies and release commits, then one seq_cst fence, then the look at the flag. A
             * batch of one is the ordinary append: a seq_cst commit and the seq_cst load behind it wait
             * for each other as the fence makes them. */
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

/* Control::position, Reader::check_hidden_record: the writer has passed this place and nothing is committed
 * here. That is damage, and must never be said of a log that has none. All loads are acquire. */
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

/* Reader::goes_on_after_end: where no writer lives, an end recorded beyond this place says that records are lost.
 * It must never be said of a log that has lost none. */
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
    bool moving_on; /* in the look at the end of Reader::wait that follows a sealed segment */
    bool next_record_whole, segment_missing, corrupt_record; /* names for what is asserted */
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
            /* In order, none twice, none left out, and not before it was whole. */
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
    /* passed_over(): the hint that makes it worth a look may say anything at any time. */
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
        flag_buffered[me] = true /* waiters_pending = 1, seq_cst; nobody sees a buffered store */
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

/* ---- nothing moves any more: then everybody has read everything ---- */

#define QUIET (silent && !killed && DRAINED && asleep[0] && asleep[READERS - 1])

init {
    byte k, committed;
    bool asleep_for_ever; /* in front of a record that was committed */
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
