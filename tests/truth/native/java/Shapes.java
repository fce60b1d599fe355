// Functions of many shapes, each with a mark that counts its calls. What stands behind `//=` is what has to come of a
// function that is not told by its compiled name alone.
import java.util.List;
import java.util.TreeMap;
import java.util.function.IntUnaryOperator;

public class Shapes {
    static final TreeMap<String, long[]> MARKS = new TreeMap<>();
    static void hit(String mark) { MARKS.computeIfAbsent(mark, key -> new long[1])[0]++; }

    interface Price {
        int cost();
        default int price() { hit("Price.price"); return cost() + 1; }
    }
    static class Item implements Price {
        final int n;
        Item(int n) { hit("Item.Item"); this.n = n; }
        public int cost() { hit("Item.cost"); return n; }
        int never() { hit("Item.never"); return 0; }
        class Part { int parted() { hit("Item.Part.parted"); return n; } }
    }
    record Book(int pages) implements Price {
        public int cost() { hit("Book.cost"); return pages; }
        public int price() { hit("Book.price"); return cost() * 2; }
    }
    enum Colour { RED; int shade() { hit("Colour.shade"); return ordinal(); } }
    static int total(int n) { hit("total(int)"); return n; } //= ambiguous
    static long total(long n) { hit("total(long)"); return n; } //= ambiguous
    static <T extends Comparable<T>> T most(List<T> all) { hit("most"); return all.get(0).compareTo(all.get(1)) > 0 ? all.get(0) : all.get(1); }
    static int recursive(int n) { hit("recursive"); return n < 2 ? 1 : recursive(n - 1) + recursive(n - 2); }
    static synchronized int locked(int n) { hit("locked"); return n; }
    static int several(int... all) { hit("several"); return all.length; }

    static int round(int at) { hit("round");
        Item item = new Item(at);
        int sum = item.price() + new Book(at).price() + item.new Part().parted() + Colour.RED.shade() + recursive(3);
        IntUnaryOperator own = n -> {
            hit("round.lambda"); return n + at; //= ambiguous
        };
        Price nameless = new Price() {
            public int cost() { hit("round.nameless"); return at; } //= ambiguous
        };
        sum += own.applyAsInt(1) + nameless.cost() + most(List.of(1, at)) + locked(at) + several(1, 2);
        return sum + total(at) + (int) total((long) at);
    }

    public static void main(String[] values) {
        long sum = 0;
        for (int at = 0; at < Integer.parseInt(values[0]); at++) sum += round(at);
        MARKS.forEach((mark, calls) -> System.out.println(mark + " " + calls[0]));
        if (sum == 0) new Item(1).never();
    }
}
