package tapewire.compare;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * One end of an alternative, in its own JVM:
 * {@code ALTERNATIVE receive|send DIRECTORY SIZE MESSAGES GAP_NS}. Gap 0 means as fast as possible.
 * Both ends run the same phases, coordinated by the parent:
 *
 * <pre>
 * receiver  ready                 warm                        RESULT
 * sender           warm-up, cold        go: settle, measured          ends
 * </pre>
 */
public final class Main {
    /** Many short calls of the loops, not a long one, so that they are compiled as complete methods. */
    private static final int ROUND = 20_000;

    /** About half a second of each: every method on the path has been compiled by C2 by then. */
    private static final int PACED_ROUNDS = 20;

    private static final int FLOOD_ROUNDS = 100;

    /** During warm-up: slow enough that the receiver also finds an empty queue, as it will later. */
    private static final long WARM_UP_GAP_NS = 2_000;

    /** Time for the compiler to finish the methods that the warm-up has queued. */
    private static final long COMPILER_MS = 300;

    private final Path directory;
    private final int size;
    private final int messages;
    private final long gapNs;
    private final Parent parent = new Parent();

    private Main(String[] args) {
        directory = Path.of(args[2]);
        size = Integer.parseInt(args[3]);
        messages = Integer.parseInt(args[4]);
        gapNs = Long.parseLong(args[5]);
    }

    public static void main(String[] args) throws Exception {
        Main main = new Main(args);
        boolean chronicle = args[0].equals("chronicle");
        switch (args[1]) {
            case "receive" -> {
                try (Receiver end = chronicle ? main.chronicleReceiver() : main.aeronReceiver()) {
                    main.receive(end);
                }
            }
            case "send" -> {
                try (Sender end = chronicle ? main.chronicleSender() : main.aeronSender()) {
                    main.send(end);
                }
            }
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    private Receiver chronicleReceiver() {
        return new Chronicle.Tail(directory, size, total());
    }

    private Sender chronicleSender() {
        return new Chronicle.Append(directory, size, total());
    }

    private Receiver aeronReceiver() {
        return new AeronIpc.Subscriber(directory);
    }

    private Sender aeronSender() {
        return new AeronIpc.Publisher(directory, size);
    }

    private boolean flood() {
        return gapNs == 0;
    }

    private int warmUp() {
        return ROUND * (flood() ? FLOOD_ROUNDS : PACED_ROUNDS);
    }

    /** Not counted, at the real pace: caches and branches as in what follows. */
    private int settle() {
        return flood() ? 0 : messages / 10;
    }

    private int total() {
        return warmUp() + settle() + messages;
    }

    // ---- sending -----------------------------------------------------------------------------------

    private void send(Sender end) throws InterruptedException {
        for (int sent = 0; sent < warmUp(); sent += ROUND) {
            sendRound(end, ROUND, flood() ? 0 : Math.min(gapNs, WARM_UP_GAP_NS));
        }
        parent.awaitGo();
        Thread.sleep(COMPILER_MS);
        sendRound(end, settle() + messages, gapNs);
    }

    private static void sendRound(Sender end, int count, long gapNs) {
        if (gapNs == 0) {
            sendAll(end, count);
        } else {
            sendPaced(end, count, gapNs);
        }
    }

    private static void sendAll(Sender end, int count) {
        long startNs = System.nanoTime();
        for (int i = 0; i < count; i++) {
            end.send(startNs);
        }
    }

    private static void sendPaced(Sender end, int count, long gapNs) {
        long dueNs = System.nanoTime() + gapNs;
        for (int i = 0; i < count; i++) {
            while (System.nanoTime() < dueNs) {
                // spins: a pause would round the schedule
            }
            end.send(dueNs);
            dueNs += gapNs;
        }
    }

    // ---- receiving ---------------------------------------------------------------------------------

    private void receive(Receiver end) throws IOException, InterruptedException {
        Arrivals arrivals = flood() ? new Arrivals.Count(warmUp()) : new Arrivals.Latencies(total());
        parent.say("ready");
        for (int expected = ROUND; expected <= warmUp(); expected += ROUND) {
            receiveUntil(end, arrivals, expected);
        }
        parent.say("warm");
        receiveUntil(end, arrivals, total());
        long endNs = System.nanoTime();
        if (arrivals instanceof Arrivals.Count count) {
            parent.say(Double.toString(messages * 1e9 / (endNs - count.firstStampNs)));
        } else if (arrivals instanceof Arrivals.Latencies latencies) {
            write(directory.resolve("latencies"), latencies.ns, warmUp() + settle());
            parent.say("written");
        }
        parent.awaitGo(); // what the sender needs (Aeron's driver) lives here: not gone before it is
    }

    private static void receiveUntil(Receiver end, Arrivals arrivals, int expected) {
        while (arrivals.count < expected) {
            end.poll(arrivals);
        }
    }

    /** Little-endian 64-bit integers from {@code first} on, nothing else. */
    static void write(Path file, long[] values, int first) throws IOException {
        ByteBuffer bytes =
                ByteBuffer.allocate(8 * (values.length - first)).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asLongBuffer().put(values, first, values.length - first);
        Files.write(file, bytes.array());
    }
}
