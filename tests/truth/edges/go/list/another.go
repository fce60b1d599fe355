package list

func another() int { return helper(0) } //: list.another = list.helper
