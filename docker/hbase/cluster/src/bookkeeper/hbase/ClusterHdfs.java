package bookkeeper.hbase;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * HDFS for an HBase cluster of a test: one NameNode and some DataNodes in one JVM.
 *
 * <p>Arrives: DIR HOST PORT DATANODES, and lines on standard input: questions to the HBase that lies on it, see {@link
 * ClusterAdmin}. Leaves: one line {@link #READY} when files can be written, then one line for each question. It ends
 * when standard input ends, so it never outlives its owner.
 */
public final class ClusterHdfs {
  static final String READY = "HDFS READY";
  private static final long POLL_MS = 50;

  private ClusterHdfs() {}

  /** Start, say that it is ready, answer questions. */
  public static void main(String[] args) {
    int code = 0;
    try {
      start(new File(args[0]), args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
      System.out.println(READY);
      answer();
    } catch (Throwable failure) {
      failure.printStackTrace();
      code = 1;
    }
    System.out.flush();
    System.err.flush();
    Runtime.getRuntime().halt(code);
  }

  private static void start(File directory, String host, int port, int dataNodes) throws Exception {
    DefaultMetricsSystem.setMiniClusterMode(true); // several DataNodes of one JVM have one name there
    Configuration conf = configuration(directory, host, port, dataNodes);
    if (!new File(directory, "name/current/VERSION").exists()) {
      NameNode.format(conf);
    }
    NameNode.createNameNode(new String[0], conf);
    for (int number = 0; number < dataNodes; number++) {
      Configuration own = new HdfsConfiguration(conf);
      own.set("dfs.datanode.data.dir", new File(directory, "data" + number).toURI().toString());
      for (String kind : new String[] {"", "http.", "ipc."}) {
        own.set("dfs.datanode." + kind + "address", host + ":0");
      }
      DataNode.createDataNode(new String[0], own);
    }
    DistributedFileSystem files =
        (DistributedFileSystem) FileSystem.newInstance(URI.create(conf.get("fs.defaultFS")), conf);
    while (files.getDataNodeStats().length < dataNodes || files.setSafeMode(SafeModeAction.SAFEMODE_GET)) {
      Thread.sleep(POLL_MS);
    }
  }

  private static Configuration configuration(File directory, String host, int port, int dataNodes) {
    Configuration conf = new HdfsConfiguration();
    conf.set("fs.defaultFS", "hdfs://" + host + ":" + port);
    conf.set("dfs.namenode.rpc-address", host + ":" + port);
    conf.set("dfs.namenode.http-address", host + ":0");
    conf.set("dfs.namenode.name.dir", new File(directory, "name").toURI().toString());
    conf.setInt("dfs.replication", Math.min(dataNodes, 3));
    conf.setInt("dfs.namenode.safemode.extension", 0);
    conf.setInt("dfs.heartbeat.interval", 1);
    conf.setInt("dfs.namenode.handler.count", 4);
    conf.setInt("dfs.datanode.handler.count", 3);
    conf.setBoolean("dfs.permissions.enabled", false);
    conf.setBoolean("dfs.namenode.datanode.registration.ip-hostname-check", false);
    return conf;
  }

  private static void answer() throws Exception {
    BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (ClusterAdmin admin = new ClusterAdmin()) {
      String question = questions.readLine();
      while (question != null) {
        System.out.println(admin.answer(question.split(" ")));
        question = questions.readLine();
      }
    }
  }
}
