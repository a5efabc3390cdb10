import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/** Prints the vectors of murmur2.csv: java -cp 'kafka libs' Murmur2Vectors.java > murmur2.csv */
class Murmur2Vectors {
    public static void main(String[] args) {
        for (int i = 0; i < 64; i++) line(("video:" + i * 7919L).getBytes(StandardCharsets.UTF_8));
        for (int i = 0; i < 32; i++) line("x".repeat(i).getBytes(StandardCharsets.UTF_8));
        java.util.Random random = new java.util.Random(1);
        for (int i = 1; i < 32; i++) {
            byte[] bytes = new byte[i];
            random.nextBytes(bytes);
            line(bytes);
        }
    }

    static void line(byte[] key) {
        System.out.println(HexFormat.of().formatHex(key) + "," + Utils.murmur2(key) + ","
            + BuiltInPartitioner.partitionForKey(key, 64));
    }
}
