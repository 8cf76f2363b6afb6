package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// The sizes of the partitions are in disk.img at partitionsOffset: a magic, then TableBytes and SystemBytes of
// fakeguest.Disk. A disk without them is in use to its end.
const (
	partitionsOffset = 4096
	partitionsMagic  = "fake-tart-table1"
	partitionsBytes  = 32
)

func init() { fakeguest.AddShim("diskutil", diskutil) }

// diskutil is the program of the guest that this process runs in.
func diskutil(_ context.Context, args []string) int {
	v := &vm{home: &home{knobs: fakeguest.Knobs(os.Getenv("TART_KNOBS"))}, dir: fakeguest.VMDir()}
	f, err := os.OpenFile(v.path(diskFile), os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer f.Close()
	disk, err := readPartitions(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	disk.HasRecovery = v.knobs.IsSet("", knobRecovery)
	before := *disk
	code := disk.Diskutil(args, os.Stdin, os.Stdout)
	if *disk != before {
		if err := writePartitions(f, disk); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func readPartitions(f *os.File) (*fakeguest.Disk, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d := &fakeguest.Disk{Bytes: info.Size(), TableBytes: info.Size(), SystemBytes: info.Size()}
	var b [partitionsBytes]byte
	if _, err := f.ReadAt(b[:], partitionsOffset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(b[:], []byte(partitionsMagic)) {
		d.TableBytes = int64(binary.BigEndian.Uint64(b[16:]))
		d.SystemBytes = int64(binary.BigEndian.Uint64(b[24:]))
	}
	return d, nil
}

func writePartitions(f *os.File, d *fakeguest.Disk) error {
	b := []byte(partitionsMagic)
	b = binary.BigEndian.AppendUint64(b, uint64(d.TableBytes))
	b = binary.BigEndian.AppendUint64(b, uint64(d.SystemBytes))
	_, err := f.WriteAt(b, partitionsOffset)
	return err
}
