package bookkeeper.hbase;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Makes and describes the table of the books in an HBase cluster, as its Thrift gateway can't: a table with several
 * regions, and all settings of a table.
 *
 * <p>Takes the table's name, and to make it the names of its families and the first rows of its regions (hexadecimal),
 * separated by commas; hbase-site.xml comes from the class path. A table that exists stays as it is. Leaves: a line for each
 * setting, of the table as {@code table NAME VALUE}, of a family as {@code family FAMILY NAME VALUE}; none for a table that
 * does not exist.
 */
public final class BooksTable {
  private BooksTable() {}

  /** Make or describe the table; the exit code is 1 when HBase refuses or does not answer. */
  public static void main(String[] args) {
    int code = 0;
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      TableName name = TableName.valueOf(args[0]);
      if (args.length > 1) {
        make(admin, name, args[1].split(","), args[2].split(","));
      }
      describe(admin, name);
    } catch (Exception failure) {
      System.err.println("HBASE REFUSED " + String.valueOf(failure).replace('\n', ' '));
      code = 1;
    }
    System.out.flush();
    System.err.flush();
    Runtime.getRuntime().halt(code);
  }

  private static void make(Admin admin, TableName name, String[] families, String[] firstRows) throws IOException {
    if (admin.tableExists(name)) {
      return;
    }
    // Each write is on the disks of all its datanodes before it is acknowledged, whatever the servers' hbase.wal.hsync says.
    // The timestamps are ranks: a tombstone that is kept by its age would be kept for ever.
    TableDescriptorBuilder table =
        TableDescriptorBuilder.newBuilder(name)
            .setDurability(Durability.FSYNC_WAL)
            .setValue("hbase.hstore.time.to.purge.deletes", "0");
    for (String family : families) {
      table.setColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(family))
              .setMaxVersions(1)
              .setBloomFilterType(BloomType.ROW)
              .build());
    }
    byte[][] splits = new byte[firstRows.length][];
    for (int number = 0; number < splits.length; number++) {
      splits[number] = Bytes.fromHex(firstRows[number]);
    }
    try {
      admin.createTable(table.build(), splits);
    } catch (TableExistsException other) {
      return; // another init made it meanwhile; the claim of its owner row decides
    }
  }

  private static void describe(Admin admin, TableName name) throws IOException {
    TableDescriptor table;
    try {
      table = admin.getDescriptor(name);
    } catch (TableNotFoundException missing) {
      return;
    }
    print("table ", table.getValues());
    for (ColumnFamilyDescriptor family : table.getColumnFamilies()) {
      String prefix = "family " + family.getNameAsString() + " ";
      print(prefix, family.getValues());
      family.getConfiguration().forEach((key, value) -> System.out.println(prefix + key + " " + value));
    }
  }

  private static void print(String prefix, Map<Bytes, Bytes> values) {
    Map<String, String> sorted = new TreeMap<>();
    values.forEach((key, value) -> sorted.put(text(key), text(value)));
    sorted.forEach((key, value) -> System.out.println(prefix + key + " " + value));
  }

  private static String text(Bytes bytes) {
    return new String(bytes.copyBytes(), StandardCharsets.UTF_8);
  }
}
