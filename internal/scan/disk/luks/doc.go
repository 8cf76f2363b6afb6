// Package luks reads what is encrypted with LUKS, version 1 and 2, with a passphrase or the content of a key file.
// Sources of the format: "LUKS2 On-Disk Format Specification" 1.1.1 and "LUKS1 On-Disk Format Specification" 1.2.3 of
// the cryptsetup project.
//
// It reads data encrypted with aes-xts-plain64. Other ciphers, integrity protection, a header apart from its data, a
// change of the encryption that is not complete, and key slots with other key derivations than PBKDF2 and Argon2 are
// refused by name. It writes nothing, and asks no token, TPM or key server.
//
// Invariant: headers are untrusted. Whatever their bytes are, reading one ends, and takes memory and time within fixed
// limits, among them that of a key derivation. Keys are in no error and no log.
package luks

import (
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

var (
	// ErrWrongKey is in the chain of the error when no key opens a key slot.
	ErrWrongKey = errors.New("the given key opens none of its key slots")
	// ErrUnsupported is in the chain of errors about forms of LUKS that cryptsetup reads and this package does not.
	ErrUnsupported = errors.New("not supported here")
)

// unsupportedError has its own text, and ErrUnsupported in its chain.
type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }
func (unsupportedError) Unwrap() error   { return ErrUnsupported }

func unsupported(format string, args ...any) error {
	return unsupportedError(fmt.Sprintf(format, args...))
}

func damaged(format string, args ...any) error { return chunked.Damaged(format, args...) }
