package bookkeeper.hbase;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ipc.NettyRpcClientConfigHelper;
import org.apache.hadoop.hbase.thrift.ThriftServer;
import org.apache.hbase.thirdparty.io.netty.channel.epoll.EpollSocketChannel;

/**
 * HBase's Thrift 1 gateway in a process of its own, so that it can fail without HBase.
 *
 * <p>Takes the arguments of HBase's own ThriftServer, and hbase-site.xml from the class path; {@link #UNCONFIRMED_MS}
 * there is ours. HBase's main class needs jars that nothing else here needs.
 */
public final class ThriftGateway {
  /** For so long a packet to a region server may stay unconfirmed; then its connection ends. 0: the kernel decides. */
  static final String UNCONFIRMED_MS = "bookkeeper.gateway.unconfirmed.ms";

  private ThriftGateway() {}

  /** Serve until the process is ended; a server that fails ends it with 1. */
  public static void main(String[] args) {
    try {
      Configuration conf = HBaseConfiguration.create();
      int limitMs = conf.getInt(UNCONFIRMED_MS, 0);
      if (limitMs > 0) {
        NettyRpcClientConfigHelper.setEventLoopConfig(conf, LimitedLoops.of(limitMs), EpollSocketChannel.class);
      }
      new ThriftServer(conf).run(args);
    } catch (Throwable failure) {
      failure.printStackTrace();
    }
    Runtime.getRuntime().halt(1);
  }
}
