package tapewire.compare;

/** The receiving end of an alternative. */
interface Receiver extends AutoCloseable {
    /** Takes what is there, a handful at most, without waiting. */
    void poll(Arrivals arrivals);

    @Override
    void close();
}
