package bookkeeper.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.StringJoiner;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What a test asks of an HBase cluster as its operator. A question is some words; rows are in hexadecimal, a server is its
 * port. An answer is one line that begins with OK or ERROR.
 */
final class ClusterAdmin implements AutoCloseable {
  private static final long POLL_MS = 100;
  private static final long WAIT_MS = 120_000;

  /** A server that has just started may refuse a region; then the move is asked for again after this time. */
  private static final long MOVE_MS = 10_000;

  private Connection connection;

  String answer(String[] words) {
    try {
      return "OK " + run(words);
    } catch (Exception failure) {
      String reason = failure.getCause() == null ? "" : "; last: " + failure.getCause();
      return "ERROR " + (failure + reason).replace('\n', ' ');
    }
  }

  private String run(String[] words) throws Exception {
    Admin admin = admin();
    switch (words[0]) {
      case "ready": // ready NUMBER: so many servers live and have all regions; none moves by itself from now on
        int wanted = Integer.parseInt(words[1]);
        until(() -> admin.getRegionServers().size() == wanted);
        admin.balancerSwitch(false, true);
        until(() -> settled());
        return "";
      case "start": // start SERVER: when its present process started; 0 for one that is not known
        return String.valueOf(startOf(Integer.parseInt(words[1])));
      case "where": // where TABLE ROW
        return String.valueOf(location(words[1], words[2]).getServerName().getPort());
      case "regions": // regions TABLE: the first row of each
        StringJoiner rows = new StringJoiner(" ");
        admin.getRegions(TableName.valueOf(words[1])).forEach(region -> rows.add("x" + Bytes.toHex(region.getStartKey())));
        return rows.toString();
      case "rows": // rows TABLE FAMILY: those that have cells there
        StringJoiner found = new StringJoiner(" ");
        try (Table read = connection.getTable(TableName.valueOf(words[1]));
            ResultScanner results = read.getScanner(Bytes.toBytes(words[2]))) {
          results.forEach(result -> found.add("x" + Bytes.toHex(result.getRow())));
        }
        return found.toString();
      case "move": // move TABLE ROW SERVER: the region with this row
        int port = Integer.parseInt(words[3]);
        HRegionLocation moved = location(words[1], words[2]);
        until(
            () -> {
              if (location(words[1], words[2]).getServerName().getPort() != port) {
                admin.move(moved.getRegion().getEncodedNameAsBytes(), server(port));
              }
              return within(MOVE_MS, () -> location(words[1], words[2]).getServerName().getPort() == port && settled());
            });
        return "";
      case "flush": // flush TABLE
        admin.flush(TableName.valueOf(words[1]));
        return "";
      case "alter": // alter TABLE FAMILY SETTING VALUE
        TableName altered = TableName.valueOf(words[1]);
        ColumnFamilyDescriptor family = admin.getDescriptor(altered).getColumnFamily(Bytes.toBytes(words[2]));
        admin.modifyColumnFamily(
            altered, ColumnFamilyDescriptorBuilder.newBuilder(family).setValue(words[3], words[4]).build());
        return "";
      case "compact": // compact TABLE: all files of a family become one, and what is hidden goes
        TableName table = TableName.valueOf(words[1]);
        admin.flush(table);
        admin.majorCompact(table);
        until(() -> admin.getCompactionState(table) == CompactionState.NONE && compacted(table));
        return "";
      default:
        throw new IllegalArgumentException("unknown question " + words[0]);
    }
  }

  private Admin admin() throws IOException {
    if (connection == null) {
      connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
    }
    return connection.getAdmin();
  }

  private long startOf(int port) throws IOException {
    long latest = 0;
    for (ServerName server : admin().getRegionServers()) {
      if (server.getPort() == port) {
        latest = Math.max(latest, server.getStartcode());
      }
    }
    return latest;
  }

  private ServerName server(int port) throws IOException {
    for (ServerName server : admin().getRegionServers()) {
      if (server.getPort() == port) {
        return server;
      }
    }
    throw new IOException("no server has port " + port);
  }

  private HRegionLocation location(String table, String row) throws IOException {
    byte[] key = Bytes.fromHex(row.substring(1));
    try (RegionLocator locator = connection.getRegionLocator(TableName.valueOf(table))) {
      return locator.getRegionLocation(key, true);
    }
  }

  /** Whether no region is on its way, and each is at a server that lives: one that was started again is another one. */
  private boolean settled() throws IOException {
    if (!admin().getClusterMetrics().getRegionStatesInTransition().isEmpty()) {
      return false;
    }
    Collection<ServerName> live = admin().getRegionServers();
    List<TableName> tables = new ArrayList<>(List.of(admin().listTableNames()));
    tables.add(TableName.META_TABLE_NAME);
    for (TableName table : tables) {
      try (RegionLocator locator = connection.getRegionLocator(table)) {
        locator.clearRegionLocationCache();
        for (HRegionLocation location : locator.getAllRegionLocations()) {
          if (!live.contains(location.getServerName())) {
            return false;
          }
        }
      }
    }
    return true;
  }

  /** Whether each family of each region has one file at most. */
  private boolean compacted(TableName table) throws IOException {
    for (ServerName server : admin().getRegionServers()) {
      for (RegionMetrics region : admin().getRegionMetrics(server, table)) {
        if (region.getStoreFileCount() > region.getStoreCount()) {
          return false;
        }
      }
    }
    return true;
  }

  private static void until(Condition condition) throws Exception {
    IOException[] last = {null};
    boolean isSo =
        within(
            WAIT_MS,
            () -> {
              try {
                return condition.holds();
              } catch (IOException notYet) { // a region on its way refuses; a server that starts does not answer
                last[0] = notYet;
                return false;
              }
            });
    if (!isSo) {
      throw new IOException("not so after " + WAIT_MS + " ms", last[0]);
    }
  }

  private static boolean within(long limitMs, Condition condition) throws Exception {
    long deadline = System.nanoTime() + limitMs * 1_000_000;
    while (!condition.holds()) {
      if (System.nanoTime() > deadline) {
        return false;
      }
      Thread.sleep(POLL_MS);
    }
    return true;
  }

  @Override
  public void close() throws IOException {
    if (connection != null) {
      connection.close();
    }
  }

  private interface Condition {
    boolean holds() throws Exception;
  }
}
