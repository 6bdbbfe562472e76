package tapewire.compare;

/**
 * What the receiving end notes of each message. A JVM uses one of the two implementations only, so
 * that the call is compiled straight into the polling loop.
 */
abstract class Arrivals {
    /** How many there were, those of the warm-up included. */
    int count;

    abstract void arrived(long stampNs);

    /** From when a message was due to when it was here: a sender held up is not forgiven. */
    static final class Latencies extends Arrivals {
        final long[] ns;

        Latencies(int expected) {
            ns = new long[expected];
        }

        @Override
        void arrived(long stampNs) {
            ns[count++] = System.nanoTime() - stampNs;
        }
    }

    /** A reading of the clock costs as much as a message: counts, and keeps the first stamp alone. */
    static final class Count extends Arrivals {
        private final int warmUp;
        long firstStampNs;

        Count(int warmUp) {
            this.warmUp = warmUp;
        }

        @Override
        void arrived(long stampNs) {
            if (count++ == warmUp) {
                firstStampNs = stampNs;
            }
        }
    }
}
