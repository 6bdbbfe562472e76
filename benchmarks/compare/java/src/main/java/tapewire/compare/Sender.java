package tapewire.compare;

/** The sending end of an alternative. */
interface Sender extends AutoCloseable {
    /** Sends one message that carries {@code stampNs}; waits while the transport is full. */
    void send(long stampNs);

    @Override
    void close();
}
