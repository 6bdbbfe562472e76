package tapewire.compare;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;

/**
 * The process that started this one: it reads lines from stdout and writes "go" to stdin. When stdin
 * ends, that process has closed it or has ended: this JVM then ends at once, whatever its loops do.
 */
final class Parent {
    private final CountDownLatch go = new CountDownLatch(1);

    Parent() {
        Thread listener = new Thread(this::listen, "parent");
        listener.setDaemon(true);
        listener.start();
    }

    private void listen() {
        try {
            for (int c = System.in.read(); c >= 0; c = System.in.read()) {
                if (c == '\n') {
                    go.countDown();
                }
            }
        } catch (IOException e) {
            e.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    void awaitGo() throws InterruptedException {
        go.await();
    }
}
