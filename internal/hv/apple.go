package hv

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Limits of the part of a Mac.
const (
	MaxHardwareModelBytes = 4 << 10
	MaxMachineIDBytes     = 4 << 10

	// AppleDisks is the number of disks of a Mac: the root disk, and the auxiliary storage of its
	// boot loader, in this order.
	AppleDisks = 2

	// The size of the screen of a Mac, in pixels.
	AppleDisplayWidth  = 1024
	AppleDisplayHeight = 768

	// FormatAnka is the format of a disk that is an archive made by "anka export". It has a whole
	// virtual Mac: it is the only disk of its VM, which needs neither hardware model nor machine
	// identifier.
	FormatAnka = "anka"
)

// Apple is the part of a Spec that only virtual Macs with Apple silicon have. Such a VM is of the
// architecture arm64, and its disks are two raw ones or one of FormatAnka.
type Apple struct {
	HardwareModel []byte // property list of the framework; the auxiliary storage was made for it
	MachineID     []byte // property list; serial number and hardware UUID follow from it
	MinCPUs       int    // fewest virtual CPUs of the guest; 0 = unknown
	MinMemoryMiB  int    // least memory of the guest, in MiB; 0 = unknown
}

// clone returns a copy that shares nothing.
func (a *Apple) clone() *Apple {
	if a == nil {
		return nil
	}
	own := *a
	own.HardwareModel, own.MachineID = slices.Clone(a.HardwareModel), slices.Clone(a.MachineID)
	return &own
}

// validateApple validates the part of a Mac, and that nothing contradicts it.
func (s Spec) validateApple() error {
	a, least := s.Apple, 1
	if s.isAnkaArchive() {
		least = 0
	}
	switch {
	case a == nil:
		return nil
	case len(a.HardwareModel) < least || len(a.HardwareModel) > MaxHardwareModelBytes:
		return RefusedError("a hardware model of %d bytes: want 1-%d", len(a.HardwareModel), MaxHardwareModelBytes)
	case len(a.MachineID) < least || len(a.MachineID) > MaxMachineIDBytes:
		return RefusedError("a machine identifier of %d bytes: want 1-%d", len(a.MachineID), MaxMachineIDBytes)
	case a.MinCPUs < 0 || a.MinCPUs > MaxCPUs || a.MinMemoryMiB < 0 || a.MinMemoryMiB > MaxMemoryMB:
		return RefusedError("a macOS guest that needs %d virtual CPUs and %d MiB of memory: want at most %d and %d",
			a.MinCPUs, a.MinMemoryMiB, MaxCPUs, MaxMemoryMB)
	case s.CPUs < a.MinCPUs:
		return RefusalCPUs.Error(s.CPUs, a.MinCPUs)
	case s.MemoryMB < a.MinMemoryMiB:
		return RefusalMemory.Error(s.MemoryMB, a.MinMemoryMiB)
	case s.Arch != "" && s.Arch != "arm64":
		return RefusedError("architecture %q: macOS guests are arm64", s.Arch)
	}
	if err := s.validateAppleDisks(); err != nil {
		return err
	}
	return s.PC.checkAbsent()
}

// isAnkaArchive reports whether the VM is an archive of anka.
func (s Spec) isAnkaArchive() bool { return len(s.Disks) == 1 && s.Disks[0].Format == FormatAnka }

func (s Spec) validateAppleDisks() error {
	switch {
	case s.isAnkaArchive() && len(s.Disks[0].Deltas) > 0:
		return RefusedError("an archive of anka cannot have deltas")
	case s.isAnkaArchive():
		return nil
	case len(s.Disks) != AppleDisks:
		return RefusedError("%d disks: a macOS guest has %d, its root disk and its auxiliary storage", len(s.Disks),
			AppleDisks)
	}
	for _, d := range s.Disks {
		if d.Format != "raw" {
			return RefusedError("disk format %q: the disks of a macOS guest are raw", d.Format)
		}
	}
	return nil
}

// checkAbsent refuses what was asked of a PC for a VM that is a Mac.
func (p *PC) checkAbsent() error {
	switch {
	case p.isEmpty():
		return nil
	case p.HardwareUUID != "" || p.Serial != "":
		return RefusalIdentity.Error()
	case len(p.USB) > 0:
		return RefusalUSB.Error()
	case p.Video != "" && p.Video != VideoVirtIO:
		return RefusalVideo.Error(p.Video)
	case p.Firmware != "":
		return RefusedError("firmware %q: macOS guests have the boot loader of their auxiliary storage", p.Firmware)
	}
	return nil
}

// NewMachineID returns the machine identifier of a VM that does not keep that of its template, the same
// for each call with the VM's ID. It is a binary property list with the dictionary {ECID: <unsigned number
// of 64 bits>}, as the framework makes it.
func NewMachineID(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return machineID(binary.BigEndian.Uint64(sum[:]))
}

// machineID encodes an ECID. The list has a dictionary with one key, the key, and a number of 16 bytes,
// then the offsets of these three, and the trailer with the size of offsets and references, the number
// of objects, the root and the position of the offsets.
func machineID(ecid uint64) []byte {
	var b bytes.Buffer
	b.WriteString("bplist00\xd1\x01\x02\x54ECID\x14")
	b.Write(make([]byte, 8))
	b.Write(binary.BigEndian.AppendUint64(nil, ecid))
	table := uint64(b.Len())
	b.Write([]byte{8, 11, 16})
	b.Write([]byte{0, 0, 0, 0, 0, 0, 1, 1})
	for _, n := range []uint64{3, 0, table} {
		b.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	return b.Bytes()
}
