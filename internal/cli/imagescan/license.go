package imagescan

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

// defaultLicenseFile is the license file in the current directory.
const defaultLicenseFile = "scanner.lic"

func licenseCommand(g *globals) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "license",
		Short: "Show or activate the license",
		Long: `license shows the active license, or activates one.

License keys come from a license authority, which may be your own: "buildyard license keygen" creates it,
and "buildyard license issue --product image-scanner" issues a key.

A license key is verified with the public keys in /etc/buildyard/authority.pub, in the user's
configuration directory, or in the file --license-authority.`,
		Example: `  imagescan license activate BY1...
  imagescan license show`,
	}, activateLicenseCommand(g), showLicenseCommand(g))
}

func activateLicenseCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "activate LICENSE-KEY",
		Short: "Verify a license key and write scanner.lic",
		Long: `activate verifies a license key and writes it to scanner.lic in the current directory, or to the file
--license-file. An invalid key does not change an existing file.`,
		Example: `  imagescan license activate BY1...`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := g.licensePath()
			if err != nil {
				return err
			}
			l, err := g.activate(path, strings.TrimSpace(args[0]))
			if err != nil {
				return fmt.Errorf("Failed to activate the license: %w", err) //nolint:staticcheck // fixed text
			}
			g.printMessage("License activated for %s, expiration date %s. Written to %s", l.Product,
				formatExpiration(l), path)
			return nil
		},
	}
}

// activate verifies a key and stores it.
func (g *globals) activate(path, key string) (license.License, error) {
	trust, err := license.LoadTrustedKeys(g.authorityFile)
	if err != nil {
		return license.License{}, err
	}
	l, err := trust.VerifyFor(license.ImageScanner, key)
	if err != nil {
		return l, err
	}
	if l.Expired(time.Now()) {
		return l, errors.New("expired on " + formatExpiration(l))
	}
	return l, replaceFile(path, []byte(key+"\n"))
}

func showLicenseCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Show the active license",
		Example: `  imagescan license show`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := g.license()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(g.Out, "Product: %s\nVersion: %d.0\nExpiration Date: %s\n", l.Product, l.Version,
				formatExpiration(l))
			return err
		},
	}
}

func formatExpiration(l license.License) string {
	if l.Expires.IsZero() {
		return "never"
	}
	return l.Expires.UTC().Format(time.RFC3339)
}

// licensePath returns the license file: of the flag, the configuration, or the current directory.
func (g *globals) licensePath() (string, error) {
	s, err := g.settings()
	return firstNonEmpty(g.licenseFile, s.LicenseFile, defaultLicenseFile), err
}

// license reads and verifies the license. Its error has a fixed
// text.
func (g *globals) license() (license.License, error) {
	path, err := g.licensePath()
	if err != nil {
		return license.License{}, err
	}
	l, err := license.ReadLicense(path, g.authorityFile, license.ImageScanner)
	if err == nil && l.Expired(time.Now()) {
		err = errors.New("expired on " + formatExpiration(l))
	}
	if errors.Is(err, fs.ErrNotExist) && !exists(path) {
		err = errors.New("No such file or directory") //nolint:staticcheck // fixed text
	}
	if err != nil {
		err = fmt.Errorf("Failed to validate the license '%s': %w", path, err) //nolint:staticcheck // fixed text
	}
	return l, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// replaceFile replaces a file.
func replaceFile(path string, data []byte) error {
	return writeAtomic(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeAtomic writes a new file that then replaces path as a whole, so that path is never
// incomplete.
func writeAtomic(path string, write func(io.Writer) error) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}
