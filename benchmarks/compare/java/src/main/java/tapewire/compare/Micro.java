package tapewire.compare;

import java.io.IOException;
import java.nio.file.Path;
import java.util.function.IntConsumer;

/**
 * What one append and one read of Chronicle Queue cost, each alone, in one thread:
 * {@code DIRECTORY SIZE MESSAGES}. Prints the mean of each round, and leaves the times of the single
 * calls in the files {@code append} and {@code tail}.
 */
public final class Micro {
    private static final int WARM_UP_ROUNDS = 100;
    private static final int WARM_UP = 20_000;
    private static final int ROUNDS = 20;

    private Micro() {}

    public static void main(String[] args) throws IOException {
        Parent parent = new Parent();
        Path directory = Path.of(args[0]);
        int size = Integer.parseInt(args[1]);
        int messages = Integer.parseInt(args[2]);
        int total = WARM_UP_ROUNDS * WARM_UP + ROUNDS * perRound(messages) + messages;
        try (Chronicle.Append sender = new Chronicle.Append(directory, size, total)) {
            measure(parent, directory, "append", messages, i -> sender.send(i));
        }
        try (Chronicle.Tail receiver = new Chronicle.Tail(directory, size, total)) {
            Arrivals arrivals = new Arrivals.Count(0);
            measure(parent, directory, "tail", messages, i -> receiver.poll(arrivals));
            if (arrivals.count != total) {
                throw new IllegalStateException("read " + arrivals.count + " of " + total);
            }
        }
    }

    private static void measure(
            Parent parent, Path directory, String name, int messages, IntConsumer call)
            throws IOException {
        for (int round = 0; round < WARM_UP_ROUNDS; round++) {
            // Both kinds of loop by turns, so that both are compiled for this call.
            if (round % 2 == 0) {
                meanNs(WARM_UP, call);
            } else {
                eachNs(new long[WARM_UP], call);
            }
        }
        StringBuilder line = new StringBuilder(name);
        for (int round = 0; round < ROUNDS; round++) {
            line.append(' ').append(meanNs(perRound(messages), call));
        }
        long[] ns = new long[messages];
        eachNs(ns, call);
        Main.write(directory.resolve(name), ns, 0);
        parent.say(line.toString());
    }

    private static int perRound(int messages) {
        return Math.max(1, messages / ROUNDS);
    }

    private static double meanNs(int count, IntConsumer call) {
        long startNs = System.nanoTime();
        for (int i = 0; i < count; i++) {
            call.accept(i);
        }
        return (double) (System.nanoTime() - startNs) / count;
    }

    private static void eachNs(long[] ns, IntConsumer call) {
        for (int i = 0; i < ns.length; i++) {
            long startNs = System.nanoTime();
            call.accept(i);
            ns[i] = System.nanoTime() - startNs;
        }
    }
}
