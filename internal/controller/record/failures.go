package record

import (
	"strconv"

	"github.com/buildyard/buildyard/internal/farm"
)

// failureKeys returns the keys of a failed instance in the index ByFailure; none for another one.
func failureKeys(i *farm.Instance) []string {
	if i.State != farm.Errored {
		return nil
	}
	keys := []string{FailureOfTemplate(i)}
	if i.NodeID != "" {
		keys = append(keys, FailureOfNode(i))
	}
	return keys
}

// FailureOfTemplate returns the key of the instances that failed with the class, the template and the version of an
// instance in Error; "" for another one.
func FailureOfTemplate(i *farm.Instance) string {
	f := i.ShownFailure()
	if f == nil {
		return ""
	}
	return "template " + string(f.Class) + " " + i.Template.ID + " " + strconv.Itoa(i.Template.Version)
}

// FailureOfNode returns the key of the instances that failed with the class and on the node of an instance in
// Error; "" for another one.
func FailureOfNode(i *farm.Instance) string {
	f := i.ShownFailure()
	if f == nil {
		return ""
	}
	return "node " + string(f.Class) + " " + i.NodeID
}
