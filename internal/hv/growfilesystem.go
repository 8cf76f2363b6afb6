package hv

import (
	_ "embed"
	"time"
)

// growScript makes the root file system of a Linux guest fill its disk. The comment in grow.sh
// describes what it needs and prints.
//
//go:embed grow.sh
var growScript []byte

// GrowFileSystemCommand is the Command that lets a Linux guest use a first disk that has grown
// (Spec.DiskBytes): it enlarges the root partition, when that is the last one of its disk, and the
// file system in it. It may be run again at any time. Code 0 means done, or nothing to grow;
// otherwise the end of stderr is a sentence with the reason.
func GrowFileSystemCommand(timeout time.Duration) Command { return ScriptCommand(growScript, timeout) }
