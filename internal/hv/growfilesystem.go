package hv

import (
	_ "embed"
	"fmt"
	"time"
)

// The scripts that make the root file system of a guest fill its disk: that of macOS guests does nothing
// in others. Their comments describe what they need and print.
var (
	//go:embed grow.sh
	growLinux string
	//go:embed growmac.sh
	growMac string
)

// growScript sets the sentence of a refusal and has both scripts.
var growScript = fmt.Appendf(nil, "recovery_behind=\"%s\"\n%s%s", RefusalGrow, growMac, growLinux)

// GrowFileSystemCommand is the Command that lets a Linux or macOS guest use a first disk that has grown
// (Spec.DiskBytes): it enlarges the root partition, when that is the last one of its disk, and the
// file system in it. It may be run again at any time. Code 0 means done, or nothing to grow;
// otherwise the end of stderr is a sentence with the reason.
func GrowFileSystemCommand(timeout time.Duration) Command {
	return Command{Path: "/bin/sh", Stdin: growScript, Timeout: timeout}
}
