package catalog

// Merge puts the packages of several results together: each name and version of a kind once,
// in the order of names.
func Merge(packages []Package) []Package { return merge(packages) }
