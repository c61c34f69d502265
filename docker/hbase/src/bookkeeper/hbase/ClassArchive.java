package bookkeeper.hbase;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.thrift.generated.ColumnDescriptor;
import org.apache.hadoop.hbase.thrift.generated.Hbase;
import org.apache.hadoop.hbase.thrift.generated.Mutation;
import org.apache.hadoop.hbase.thrift.generated.TScan;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import sun.misc.Signal;

/**
 * Uses HBase and its gateway for a moment in one JVM, so that the JVM can archive their classes (class data sharing).
 *
 * <p>Takes a directory for HBase's data. The JVM has the option -XX:ArchiveClassesAtExit, and writes the archive when HBase
 * has stopped. Exits with 0; with 1 when HBase fails.
 */
public final class ClassArchive {
  private static final long POLL_MS = 100;
  private static final long USE_MS_MAX = 180_000;
  private static final ByteBuffer TABLE = bytes("archive");
  private static final ByteBuffer ROW = bytes("row");
  private static final ByteBuffer COLUMN = bytes("f:q");

  private ClassArchive() {}

  /** Start HBase, use it, and stop it. */
  public static void main(String[] args) throws IOException {
    List<String> options = new ArrayList<>(List.of("--data", new File(args[0]).getPath()));
    int port = 0;
    for (String name : List.of("--zookeeper-port", "--master-port", "--regionserver-port", "--thrift-port")) {
      port = freePort();
      options.addAll(List.of(name, String.valueOf(port)));
    }
    int gateway = port;
    LimitedLoops.of((int) USE_MS_MAX);
    new Thread(() -> useAndStop(gateway), "use").start();
    SingleJvmHBase.main(options.toArray(new String[0]));
  }

  /** What a host does with its books. */
  private static void useAndStop(int port) {
    long deadline = System.nanoTime() + USE_MS_MAX * 1_000_000;
    while (!used(port) && System.nanoTime() < deadline) {
      try {
        Thread.sleep(POLL_MS);
      } catch (InterruptedException ended) {
        break;
      }
    }
    Signal.raise(new Signal("TERM"));
  }

  private static boolean used(int port) {
    try (TSocket socket = new TSocket(new TConfiguration(), "127.0.0.1", port, (int) USE_MS_MAX)) {
      socket.open();
      Hbase.Client client = new Hbase.Client(new TBinaryProtocol(socket));
      if (!client.getTableNames().contains(TABLE)) {
        client.createTable(TABLE, List.of(new ColumnDescriptor().setName(bytes("f:"))));
      }
      client.mutateRow(TABLE, ROW, List.of(new Mutation(false, COLUMN, bytes("v"), true)), Map.of());
      client.getRow(TABLE, ROW, Map.of());
      int scan = client.scannerOpenWithScan(TABLE, new TScan(), Map.of());
      client.scannerGetList(scan, 1);
      client.scannerClose(scan);
      client.mutateRow(TABLE, ROW, List.of(new Mutation(true, COLUMN, bytes(""), true)), Map.of());
      return true;
    } catch (TException notYet) {
      return false; // the gateway does not answer before HBase is ready
    }
  }

  private static ByteBuffer bytes(String text) {
    return ByteBuffer.wrap(text.getBytes());
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }
}
