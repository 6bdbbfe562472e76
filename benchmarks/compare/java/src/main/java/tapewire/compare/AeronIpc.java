package tapewire.compare;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.ByteOrder;
import java.nio.file.Path;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.SleepingMillisIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/** Aeron over shared memory: the messages pass by the driver, which lives in the receiving process. */
final class AeronIpc {
    private static final String CHANNEL = "aeron:ipc";
    private static final int STREAM = 1;
    private static final int FRAGMENTS = 16;

    private AeronIpc() {}

    private static String driverDirectory(Path directory) {
        return directory.resolve("aeron").toString();
    }

    private static Aeron connect(Path directory) {
        return Aeron.connect(
                new Aeron.Context()
                        .aeronDirectoryName(driverDirectory(directory))
                        .preTouchMappedMemory(true));
    }

    /** The writing end: claims space in the log, fills it, commits. */
    static final class Publisher implements Sender {
        private final Aeron aeron;
        private final ExclusivePublication publication;
        private final BufferClaim claim = new BufferClaim();
        private final UnsafeBuffer rest;
        private final int size;

        Publisher(Path directory, int size) {
            this.size = size;
            rest = new UnsafeBuffer(new byte[size - Long.BYTES]);
            aeron = connect(directory);
            publication = aeron.addExclusivePublication(CHANNEL, STREAM);
            while (!publication.isConnected()) {
                Thread.onSpinWait();
            }
        }

        @Override
        public void send(long stampNs) {
            long position = publication.tryClaim(size, claim);
            while (position < 0) {
                position = again(position);
            }
            MutableDirectBuffer buffer = claim.buffer();
            buffer.putLong(claim.offset(), stampNs, ByteOrder.LITTLE_ENDIAN);
            buffer.putBytes(claim.offset() + Long.BYTES, rest, 0, rest.capacity());
            claim.commit();
        }

        private long again(long why) {
            if (why != Publication.BACK_PRESSURED && why != Publication.ADMIN_ACTION) {
                throw new IllegalStateException("not sent: " + Publication.errorString(why));
            }
            Thread.onSpinWait();
            return publication.tryClaim(size, claim);
        }

        @Override
        public void close() {
            aeron.close();
        }
    }

    /** The reading end, and the driver. */
    static final class Subscriber implements Receiver {
        private final MediaDriver driver;
        private final Aeron aeron;
        private final Subscription subscription;
        private final FragmentHandler handler;
        private Arrivals arrivals;

        Subscriber(Path directory) {
            // One driver thread that sleeps: with two cores and both ends spinning, a driver that spins
            // too would take its time from them. All it does here is to move the flow-control window.
            driver =
                    MediaDriver.launch(
                            new MediaDriver.Context()
                                    .aeronDirectoryName(driverDirectory(directory))
                                    .threadingMode(ThreadingMode.SHARED)
                                    .sharedIdleStrategy(new SleepingMillisIdleStrategy(1))
                                    .termBufferSparseFile(false)
                                    .dirDeleteOnStart(true)
                                    .dirDeleteOnShutdown(true));
            aeron = connect(directory);
            subscription = aeron.addSubscription(CHANNEL, STREAM);
            handler =
                    (buffer, offset, length, header) ->
                            arrivals.arrived(buffer.getLong(offset, ByteOrder.LITTLE_ENDIAN));
        }

        @Override
        public void poll(Arrivals into) {
            arrivals = into;
            subscription.poll(handler, FRAGMENTS);
        }

        @Override
        public void close() {
            aeron.close();
            driver.close();
        }
    }
}
