package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// luksSpare is the space that cryptsetup takes from the end of a file: the header, and twice that to move the content.
const luksSpare = 32 << 20

// MakeLUKS writes a file with the content of an image encrypted with LUKS version 2. cryptsetup encrypts it in place;
// the kernel's device mapper is not needed. It refuses images with a partition table. to is an absolute path.
func MakeLUKS(ctx context.Context, image, to, keyFile string) error {
	if err := copyFile(image, to); err != nil {
		return err
	}
	st, err := os.Stat(to)
	if err != nil {
		return err
	}
	if err := os.Truncate(to, st.Size()+luksSpare); err != nil {
		return err
	}
	if _, err := Output(ctx, filepath.Dir(to), "cryptsetup", "reencrypt", "--encrypt", "--type", "luks2", "-q",
		"--reduce-device-size", "32M", "--key-file", keyFile, to); err != nil {
		return fmt.Errorf("no LUKS can be made: %w; install cryptsetup-bin", err)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
