package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// The guest's files are a tar archive in disk.img: at treeOffset a magic, the pairing ID, the size of the archive, the
// archive. Its bytes depend on the files alone, so that a boot without changes leaves the disk as it was. nvram.bin
// has a magic, the pairing ID, and at bootsOffset the number of boots.
const (
	treeOffset  = 64 << 10
	treeHeader  = 40
	diskMagic   = "fake-tart-disk-1"
	nvramMagic  = "fake-tart-nvram1"
	bootsOffset = 4096
	maxTree     = 256 << 20
)

// formatGuest makes an empty disk and its auxiliary storage, which belong together.
func formatGuest(v *vm, size int64) error {
	pairing := make([]byte, 16)
	_, _ = rand.Read(pairing)
	disk := append([]byte(diskMagic), pairing...)
	nvram := append([]byte(nvramMagic), pairing...)
	for _, f := range []struct {
		name    string
		size    int64
		at      int64
		content []byte
	}{{diskFile, size, treeOffset, disk}, {nvramFile, nvramBytes, 0, nvram}} {
		file, err := os.OpenFile(v.path(f.name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(f.content, f.at)
		if f.name == diskFile {
			err = errors.Join(err, writePartitions(file, &fakeguest.Disk{TableBytes: f.size, SystemBytes: f.size}))
		}
		if err := errors.Join(err, file.Truncate(f.size), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// readHeader returns what disk.img has at treeOffset; a disk that no fake has made has an empty archive.
func readHeader(disk *os.File) (pairing []byte, size int64, err error) {
	var head [treeHeader]byte
	if _, err := disk.ReadAt(head[:], treeOffset); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	if !bytes.HasPrefix(head[:], []byte(diskMagic)) {
		return nil, 0, nil
	}
	size = int64(binary.BigEndian.Uint64(head[32:]))
	if size < 0 || size > maxTree {
		return nil, 0, fmt.Errorf("the guest's archive has %d bytes", size)
	}
	return head[16:32], size, nil
}

// bootFirmware counts the boot, and fails when disk and auxiliary storage belong to different machines.
func bootFirmware(v *vm) error {
	disk, err := os.Open(v.path(diskFile))
	if err != nil {
		return err
	}
	defer disk.Close()
	pairing, _, err := readHeader(disk)
	if err != nil {
		return err
	}
	nvram, err := os.OpenFile(v.path(nvramFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer nvram.Close()
	var head [32]byte
	_, _ = nvram.ReadAt(head[:], 0)
	if pairing != nil && bytes.HasPrefix(head[:], []byte(nvramMagic)) && !bytes.Equal(head[16:], pairing) {
		return errors.New("the auxiliary storage belongs to another disk")
	}
	var boots [8]byte
	if n, _ := nvram.ReadAt(boots[:], bootsOffset); n < len(boots) {
		return nil // too small to be one of ours
	}
	binary.BigEndian.PutUint64(boots[:], binary.BigEndian.Uint64(boots[:])+1)
	_, err = nvram.WriteAt(boots[:], bootsOffset)
	return err
}

// loadTree writes the files of disk.img into a directory.
func loadTree(v *vm, dir string) error {
	disk, err := os.Open(v.path(diskFile))
	if err != nil {
		return err
	}
	defer disk.Close()
	_, size, err := readHeader(disk)
	if err != nil {
		return err
	}
	return fakeguest.Unpack(io.NewSectionReader(disk, treeOffset+treeHeader, size), dir)
}

// storeTree writes the files of a directory into disk.img, and zeros over what a larger archive has left there.
func storeTree(v *vm, dir string) error {
	if v.knobs.IsSet(v.name, knobDiskFull) {
		return fmt.Errorf("write %s: %w", diskFile, syscall.ENOSPC)
	}
	archive, err := fakeguest.Pack(dir)
	if err != nil {
		return err
	}
	disk, err := os.OpenFile(v.path(diskFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	pairing, old, err := readHeader(disk)
	if err != nil {
		return err
	}
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	if treeOffset+treeHeader+int64(len(archive)) > info.Size() {
		return fmt.Errorf("the guest's files: %w", syscall.ENOSPC)
	}
	content := make([]byte, treeHeader, treeHeader+max(int64(len(archive)), old))
	copy(content, diskMagic)
	copy(content[16:], pairing)
	binary.BigEndian.PutUint64(content[32:], uint64(len(archive)))
	content = append(content, archive...)
	_, err = disk.WriteAt(content[:cap(content)], treeOffset)
	return errors.Join(err, disk.Sync())
}
