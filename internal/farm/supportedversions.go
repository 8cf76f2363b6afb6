package farm

import "fmt"

// SupportedVersions are the versions of a schema or protocol that a program supports. A release supports those of the
// release before it, so that programs of two consecutive releases work together.
type SupportedVersions struct {
	Subject        string // what has the version, as the beginning of a sentence: "Node protocol"
	Oldest, Newest int
	Reader         string // the program that supports them: "this controller"
	// What to do about a version that is newer or older than the supported ones, as the end of a sentence.
	IfNewer, IfOlder string
}

// Check returns a CodeRefused error for an unsupported version. Version 0 stands for version 1: the first release
// writes none in some places.
func (s SupportedVersions) Check(version int) error {
	remedy := ""
	switch v := max(version, 1); {
	case version < 0 || v < s.Oldest:
		remedy = s.IfOlder
	case v > s.Newest:
		remedy = s.IfNewer
	default:
		return nil
	}
	supported := fmt.Sprintf("version %d", s.Newest)
	if s.Oldest != s.Newest {
		supported = fmt.Sprintf("versions %d to %d", s.Oldest, s.Newest)
	}
	return Refused("%s version %d is not supported: %s supports %s; %s",
		s.Subject, version, s.Reader, supported, remedy)
}
