package bookkeeper.hbase;

import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.thrift.ThriftServer;

/**
 * HBase's Thrift 1 gateway in a process of its own, so that it can fail without HBase.
 *
 * <p>Takes the arguments of HBase's own ThriftServer, and hbase-site.xml from the class path. HBase's main class needs
 * jars that nothing else here needs.
 */
public final class ThriftGateway {
  private ThriftGateway() {}

  /** Serve until the process is ended; a server that fails ends it with 1. */
  public static void main(String[] args) {
    try {
      new ThriftServer(HBaseConfiguration.create()).run(args);
    } catch (Exception failure) {
      failure.printStackTrace();
    }
    Runtime.getRuntime().halt(1);
  }
}
