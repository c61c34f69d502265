package bookkeeper.hbase;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.LocalHBaseCluster;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.thrift.ThriftServer;
import org.apache.hadoop.hbase.thrift.generated.Hbase;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.VersionInfo;
import org.apache.hadoop.hbase.zookeeper.MiniZooKeeperCluster;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import sun.misc.Signal;

/**
 * A whole HBase in one JVM: ZooKeeper, one master, one region server, the Thrift 1 gateway.
 *
 * <p>Arrives: options (see {@link Options}). Leaves: one line on standard output that starts with {@link
 * #READY} once the master is initialised, every region of every enabled table answers a read, and Thrift
 * answers. Survives a crash: everything acknowledged, because all state is under the data directory and the
 * ports, which are part of the servers' names, are given by the caller and stay the same over a restart.
 *
 * <p>SIGTERM and SIGINT stop it cleanly and exit 0. If a server dies by itself, the process says so and
 * exits 1: half an HBase is of no use to anyone.
 */
public final class SingleJvmHBase {
  static final String READY = "HBASE READY";

  private static final long READY_MS_MAX = 180_000;
  private static final long POLL_MS = 50;

  private final Options options;
  private final Configuration conf;
  private final CountDownLatch stopRequested = new CountDownLatch(1);
  private final AtomicReference<Throwable> thriftFailure = new AtomicReference<>();

  private SingleJvmHBase(Options options) {
    this.options = options;
    this.conf = configuration(options);
  }

  /** Start, say that it is ready, and serve until asked to stop. */
  public static void main(String[] args) {
    int code = 1;
    try {
      code = new SingleJvmHBase(Options.parse(args)).run();
    } catch (Options.Invalid invalid) {
      System.err.println(invalid.getMessage());
      code = 2;
    } catch (Throwable failure) {
      failure.printStackTrace();
    }
    System.out.flush();
    System.err.flush();
    // HBase leaves non-daemon threads and slow shutdown hooks behind; what had to be closed is closed.
    Runtime.getRuntime().halt(code);
  }

  private int run() throws Exception {
    long started = System.nanoTime();
    Signal.handle(new Signal("TERM"), signal -> stopRequested.countDown());
    Signal.handle(new Signal("INT"), signal -> stopRequested.countDown());
    if (options.stopOnStdinEof) {
      daemon("stdin-watch", this::waitForStdinEof);
    }
    MiniZooKeeperCluster zookeeper = new MiniZooKeeperCluster(conf);
    zookeeper.addClientPort(options.zookeeperPort);
    int port = zookeeper.startup(new File(options.data, "zookeeper"));
    if (port != options.zookeeperPort) {
      throw new IOException("ZooKeeper port " + options.zookeeperPort + " is taken: choose another one");
    }
    LocalHBaseCluster cluster = new LocalHBaseCluster(conf, 1, 1);
    cluster.startup();
    String trouble = serve(cluster, started);
    if (trouble != null) {
      System.err.println("HBASE FAILED " + trouble);
      return 1; // no clean stop: a server that failed may hang in it, and restart recovers as after a crash
    }
    cluster.shutdown();
    cluster.join();
    zookeeper.shutdown();
    System.out.println("HBASE STOPPED");
    return 0;
  }

  /** Serve until a stop is asked for (null) or a part fails (its description). */
  private String serve(LocalHBaseCluster cluster, long started) throws Exception {
    long deadline = started + TimeUnit.MILLISECONDS.toNanos(READY_MS_MAX);
    Stage stage = Stage.MASTER;
    while (true) {
      String trouble = failureOf(cluster);
      if (trouble != null) {
        return trouble;
      }
      if (stage == Stage.MASTER && cluster.getMaster(0).isInitialized() && settled(cluster.getMaster(0))) {
        readEveryRegion();
        daemon("thrift", this::runThrift);
        stage = Stage.THRIFT;
      } else if (stage == Stage.THRIFT && thriftAnswers()) {
        announce(started);
        stage = Stage.READY;
      }
      if (stage != Stage.READY && System.nanoTime() > deadline) {
        return "not ready after " + READY_MS_MAX + " ms, waiting for " + stage;
      }
      if (stopRequested.await(stage == Stage.READY ? POLL_MS * 10 : POLL_MS, TimeUnit.MILLISECONDS)) {
        return null;
      }
    }
  }

  private String failureOf(LocalHBaseCluster cluster) {
    if (thriftFailure.get() != null) {
      return "Thrift: " + thriftFailure.get();
    }
    if (cluster.getLiveMasters().isEmpty()) {
      return "the master stopped; its log says why";
    }
    return cluster.getLiveRegionServers().isEmpty() ? "the region server stopped; its log says why" : null;
  }

  /** After a crash the master is initialised before it has recovered the logs of the server that died. */
  private static boolean settled(HMaster master) {
    return master.getMasterProcedureExecutor().getActiveProcIds().isEmpty()
        && !master.getAssignmentManager().hasRegionsInTransition();
  }

  private void readEveryRegion() throws IOException {
    try (Connection connection = ConnectionFactory.createConnection(conf);
        Admin admin = connection.getAdmin()) {
      for (TableName name : admin.listTableNames()) {
        if (!admin.isTableEnabled(name)) {
          continue;
        }
        try (Table table = connection.getTable(name)) {
          for (RegionInfo region : admin.getRegions(name)) {
            byte[] start = region.getStartKey();
            table.exists(new Get(start.length == 0 ? Bytes.toBytes("\0") : start));
          }
        }
      }
    }
  }

  private void runThrift() {
    try {
      new ThriftServer(conf)
          .run(
              new String[] {
                "--bind", options.thriftHost, "-p", String.valueOf(options.thriftPort), "--infoport", "-1", "start"
              });
      thriftFailure.compareAndSet(null, new IllegalStateException("the server returned"));
    } catch (Exception failure) {
      thriftFailure.set(failure);
    }
  }

  private boolean thriftAnswers() {
    String host = "0.0.0.0".equals(options.thriftHost) ? "127.0.0.1" : options.thriftHost;
    try (TSocket socket = new TSocket(new TConfiguration(), host, options.thriftPort, (int) READY_MS_MAX)) {
      socket.open();
      new Hbase.Client(new TBinaryProtocol(socket)).getTableNames();
      return true;
    } catch (TException notYet) {
      return false; // asked again until the deadline; a server that ended is in thriftFailure
    }
  }

  private void announce(long started) {
    long elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started);
    System.out.printf(
        "%s thrift=%s:%d zookeeper=127.0.0.1:%d version=%s after_ms=%d%n",
        READY,
        options.thriftHost,
        options.thriftPort,
        options.zookeeperPort,
        VersionInfo.getVersion(),
        elapsedMs);
    System.out.flush();
  }

  private void waitForStdinEof() {
    try {
      while (System.in.read() >= 0) {
        continue;
      }
    } catch (IOException gone) {
      System.err.println("standard input failed, taken as its end: " + gone);
    }
    stopRequested.countDown();
  }

  private static void daemon(String name, Runnable body) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.start();
  }

  private static Configuration configuration(Options options) {
    Configuration conf = HBaseConfiguration.create();
    conf.setBoolean("hbase.cluster.distributed", false);
    conf.set(HConstants.HBASE_DIR, new File(options.data, "root").toURI().toString());
    conf.set("hbase.tmp.dir", new File(options.data, "tmp").getPath());
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false); // a local file has no hsync
    conf.set(HConstants.ZOOKEEPER_QUORUM, "127.0.0.1");
    conf.setInt(HConstants.ZOOKEEPER_CLIENT_PORT, options.zookeeperPort);
    conf.setInt(HConstants.MASTER_PORT, options.masterPort);
    conf.setInt(HConstants.REGIONSERVER_PORT, options.regionserverPort);
    conf.setInt(HConstants.MASTER_INFO_PORT, -1);
    conf.setInt(HConstants.REGIONSERVER_INFO_PORT, -1);
    conf.set("hbase.unsafe.regionserver.hostname", "127.0.0.1");
    conf.set("hbase.master.hostname", "127.0.0.1");
    conf.set("hbase.master.ipc.address", "127.0.0.1");
    conf.set("hbase.regionserver.ipc.address", "127.0.0.1");
    // One server is the whole cluster: do not wait for more, and notice each other quickly.
    conf.setInt("hbase.master.wait.on.regionservers.mintostart", 1);
    conf.setInt("hbase.master.wait.on.regionservers.maxtostart", 1);
    conf.setInt("hbase.master.wait.on.regionservers.interval", 200);
    conf.setInt("hbase.regionserver.msginterval", 300);
    conf.setBoolean("hbase.shutdown.hook", false); // this class stops the servers
    options.settings.forEach(conf::set);
    return conf;
  }

  private enum Stage {
    MASTER,
    THRIFT,
    READY
  }

  /** What the caller chooses. Ports have no default: two instances on one machine must not meet. */
  private static final class Options {
    static final String USAGE =
        "usage: SingleJvmHBase --data DIR --zookeeper-port N --master-port N --regionserver-port N"
            + " --thrift-port N [--thrift-host ADDRESS] [--stop-on-stdin-eof] [--set KEY=VALUE]...";

    File data;
    int zookeeperPort;
    int masterPort;
    int regionserverPort;
    int thriftPort;
    String thriftHost = "127.0.0.1";
    boolean stopOnStdinEof;
    final Map<String, String> settings = new TreeMap<>();

    static Options parse(String[] args) {
      Options options = new Options();
      List<String> rest = new ArrayList<>(List.of(args));
      while (!rest.isEmpty()) {
        String name = rest.remove(0);
        if (name.equals("--stop-on-stdin-eof")) {
          options.stopOnStdinEof = true;
          continue;
        }
        if (rest.isEmpty()) {
          throw new Invalid(name + " needs a value");
        }
        options.take(name, rest.remove(0));
      }
      if (options.data == null
          || options.zookeeperPort == 0
          || options.masterPort == 0
          || options.regionserverPort == 0
          || options.thriftPort == 0) {
        throw new Invalid("--data and the four ports are required");
      }
      return options;
    }

    private void take(String name, String value) {
      switch (name) {
        case "--data" -> data = new File(value).getAbsoluteFile();
        case "--zookeeper-port" -> zookeeperPort = port(name, value);
        case "--master-port" -> masterPort = port(name, value);
        case "--regionserver-port" -> regionserverPort = port(name, value);
        case "--thrift-port" -> thriftPort = port(name, value);
        case "--thrift-host" -> thriftHost = value;
        case "--set" -> {
          int equals = value.indexOf('=');
          if (equals < 1) {
            throw new Invalid("--set " + value + ": KEY=VALUE expected");
          }
          settings.put(value.substring(0, equals), value.substring(equals + 1));
        }
        default -> throw new Invalid("unknown option " + name);
      }
    }

    private static int port(String name, String value) {
      try {
        int port = Integer.parseInt(value);
        if (port > 0 && port < 65536) {
          return port;
        }
      } catch (NumberFormatException notANumber) {
        throw new Invalid(name + " " + value + ": not a port");
      }
      throw new Invalid(name + " " + value + ": a port is 1 to 65535");
    }

    static final class Invalid extends RuntimeException {
      private static final long serialVersionUID = 1L;

      Invalid(String message) {
        super(message + "\n" + USAGE);
      }
    }
  }
}
