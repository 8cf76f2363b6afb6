package fakeguest

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Disk is the disk of a macOS guest as its program diskutil shows and changes it. Its partitions are that of the
// boot, the container of the system, and perhaps that of the recovery system. Forms of outputs: diskutil of macOS 14
// as far as drivers and tests read them; the texts of errors are not confirmed on a Mac.
type Disk struct {
	Bytes       int64 // of the disk
	TableBytes  int64 // up to which the partition table describes it
	SystemBytes int64 // up to which the partitions use it
	HasRecovery bool  // the recovery partition follows the container
}

const (
	bootBytes     = 524_288_000
	recoveryBytes = 5_400_000_000

	diskForm = "   Disk Size:                 %.1f GB (%d Bytes) (exactly %d 512-Byte-Units)\n" // glossary:allow
	rootForm = "   Device Identifier:         disk3s1s1\n   Mounted:                   Yes\n" +
		"   APFS Container:            disk3\n   APFS Physical Store:       disk0s2\n"
	listForm = "/dev/disk0 (internal, physical):\n" +
		"   #:                       TYPE NAME                    SIZE       IDENTIFIER\n" +
		"   0:      GUID_partition_scheme                        *%-10s disk0\n" +
		"   1:             Apple_APFS_ISC Container disk1         %-10s disk0s1\n" +
		"   2:                 Apple_APFS Container disk3         %-10s disk0s2\n"
	recoveryForm = "   3:        Apple_APFS_Recovery Container disk2         %-10s disk0s3\n"
	freeForm     = "                    (free space)                         %-10s -\n\n"
)

// Diskutil runs diskutil with these arguments. It changes the sizes of d, and returns the exit code.
func (d *Disk) Diskutil(args []string, stdin io.Reader, stdout io.Writer) (code int) {
	switch strings.Join(args, " ") {
	case "info /":
		fmt.Fprint(stdout, rootForm)
	case "info disk0":
		fmt.Fprintf(stdout, diskForm, float64(d.Bytes)/1e9, d.Bytes, d.Bytes/512)
	case "list disk0":
		d.list(stdout)
	case "repairDisk disk0":
		return d.repair(stdin, stdout)
	case "apfs resizeContainer disk0s2 0":
		return d.resize(stdout)
	default:
		fmt.Fprintln(stdout, "diskutil: did not recognize verb or arguments")
		return 1
	}
	return 0
}

func (d *Disk) list(stdout io.Writer) {
	recovery := int64(0)
	if d.HasRecovery {
		recovery = recoveryBytes
	}
	system := max(d.SystemBytes-bootBytes-recovery, 0)
	fmt.Fprintf(stdout, listForm, sizeText(d.Bytes), sizeText(bootBytes), sizeText(system))
	if d.HasRecovery {
		fmt.Fprintf(stdout, recoveryForm, sizeText(recovery))
	}
	if free := d.TableBytes - d.SystemBytes; free > 0 {
		fmt.Fprintf(stdout, freeForm, sizeText(free))
	}
}

func sizeText(bytes int64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) // glossary:allow
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9) // glossary:allow
}

// repair asks, as it may erase the first partition.
func (d *Disk) repair(stdin io.Reader, stdout io.Writer) (code int) {
	fmt.Fprintln(stdout, "Repairing the partition map might erase disk0s1, proceed? (y/N)")
	answer, _ := bufio.NewReader(io.LimitReader(stdin, 16)).ReadString('\n')
	if strings.TrimSpace(answer) != "y" {
		fmt.Fprintln(stdout, "Repair canceled")
		return 1
	}
	d.TableBytes = d.Bytes
	fmt.Fprintln(stdout, "Started partition map repair on disk0\nFinished partition map repair on disk0")
	return 0
}

func (d *Disk) resize(stdout io.Writer) (code int) {
	switch {
	case d.TableBytes == d.SystemBytes:
		fmt.Fprintln(stdout, "Error: -69743: The new size must be different than the existing size")
		return 1
	case d.HasRecovery:
		fmt.Fprintln(stdout, "Error: -69519: The target disk is too small for this operation, or a gap is required in "+
			"your partition map between these partitions")
		return 1
	}
	d.SystemBytes = d.TableBytes
	fmt.Fprintln(stdout, "Started APFS operation\nFinished APFS operation")
	return 0
}
