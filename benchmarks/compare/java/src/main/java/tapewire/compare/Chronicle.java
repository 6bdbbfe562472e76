package tapewire.compare;

import java.nio.file.Path;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.bytes.BytesStore;
import net.openhft.chronicle.core.UnsafeMemory;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.RollCycles;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/** Chronicle Queue, by its rawest calls: bytes in, bytes out, no wire types, no method writers. */
abstract class Chronicle implements AutoCloseable {
    private static final int PAGE = 4096;
    private static final int HEADER_AND_PADDING = 8;
    private static final long FILE_HEADER_AND_INDEX = 64L << 20;

    final SingleChronicleQueue queue;
    final ExcerptAppender appender;

    /** Opens the queue with one mapping for all {@code messages}, so that none is made later. */
    private Chronicle(Path directory, int size, int messages) {
        long bytes = FILE_HEADER_AND_INDEX + (long) messages * (size + HEADER_AND_PADDING);
        queue =
                SingleChronicleQueueBuilder.binary(directory.resolve("queue"))
                        .rollCycle(RollCycles.FAST_DAILY) // its default
                        .blockSize(bytes)
                        .build();
        appender = queue.createAppender();
        faultIn(bytes);
    }

    /**
     * Puts every page in place, for the writer and the reader of this process: they share the mapping.
     * Chronicle's own pre-toucher is not part of the open-source edition.
     */
    private void faultIn(long end) {
        // Meta-data, which tailers pass over; writing it is how we get at the mapping.
        try (DocumentContext document = appender.writingDocument(true)) {
            Bytes<?> bytes = document.wire().bytes();
            long first = bytes.addressForWrite(bytes.writePosition()) & -PAGE;
            long last = bytes.addressForWrite(Math.min(end, bytes.realCapacity() - PAGE));
            for (long page = first + PAGE; page < last; page += PAGE) {
                UnsafeMemory.INSTANCE.compareAndSwapInt(page, 0, 0);
            }
        }
    }

    @Override
    public void close() {
        queue.close();
    }

    /** The writing end. */
    static final class Append extends Chronicle implements Sender {
        private final BytesStore<?, ?> message;

        Append(Path directory, int size, int messages) {
            super(directory, size, messages);
            message = BytesStore.nativeStoreWithFixedCapacity(size);
        }

        @Override
        public void send(long stampNs) {
            message.writeLong(0, stampNs);
            appender.writeBytes(message); // a third less than a DocumentContext filled in place
        }
    }

    /** The reading end. */
    static final class Tail extends Chronicle implements Receiver {
        private final ExcerptTailer tailer;

        Tail(Path directory, int size, int messages) {
            super(directory, size, messages);
            tailer = queue.createTailer();
        }

        @Override
        public void poll(Arrivals arrivals) {
            try (DocumentContext document = tailer.readingDocument()) {
                if (document.isPresent()) {
                    arrivals.arrived(document.wire().bytes().readLong());
                }
            }
        }
    }
}
