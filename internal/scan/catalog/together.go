package catalog

// Merge merges the packages of several results: each name and version of a kind once, in the order
// of names.
func Merge(packages []Package) []Package { return merge(packages) }
