package list

func helper(n int) int { return n - 1 } //: list.helper

// Length counts.
func Length(all []int) int { //: list.Length
	return helper(len(all)) + another() //= list.helper list.another
}
