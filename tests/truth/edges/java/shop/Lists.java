package shop;

import java.util.List;

final class Lists {
    static int length(List<Integer> all) { return helper(all.size()); } //: Lists_length = Lists_helper
    private static int helper(int n) { return n; } //: Lists_helper
}
