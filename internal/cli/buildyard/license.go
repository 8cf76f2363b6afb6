package buildyard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
)

// licenseKeyFile is the name of the file with an authority's secret, next to the public key.
const licenseKeyFile = "authority.key"

func licenseCommand(io Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "license",
		Short: "Manage license keys",
		Long: `license creates a license authority, signs license keys, and shows the content of a key.

An authority is a key pair. Its private key signs; its public key goes to every program that
trusts it, as /etc/buildyard/authority.pub or in the configuration directory of the user that the
program runs as. A controller reads its license from SVC_LICENSE_FILE.`,
		Example: `  buildyard license keygen
  buildyard license issue --product controller --tier enterprise --subject "Example Ltd." > controller.lic
  buildyard license show controller.lic`,
	}, keygenCommand(io), issueCommand(io), showLicenseCommand(io))
}

// defaultAuthorityKey is the default path of the secret of an authority.
func defaultAuthorityKey() string {
	if dir := license.UserDir(); dir != "" && os.Geteuid() != 0 {
		return filepath.Join(dir, licenseKeyFile)
	}
	return filepath.Join(license.SystemDir, licenseKeyFile)
}

// publicKeyPath returns the path of the public key next to that of its secret.
func publicKeyPath(secret string) string {
	return strings.TrimSuffix(secret, filepath.Ext(secret)) + ".pub"
}

// newPublicKeyPath returns the path of the public key of a new key pair, and checks that of its secret.
func newPublicKeyPath(secret string) (string, error) {
	public := publicKeyPath(secret)
	switch {
	case secret == "":
		return "", cli.Usage(errors.New("--out: path of the private key is empty"))
	case public == secret:
		return "", cli.Usage(errors.New("--out must not end in .pub: it is the file of the private key"))
	}
	return public, nil
}

func keygenCommand(streams Streams) *cobra.Command {
	secret := ""
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Create a license authority",
		Long: `keygen creates a license authority: its private key in the private file --out, and its public key next
to it, in a file that ends in .pub. It prints the paths first, and does not replace files.`,
		Example: `  buildyard license keygen --out authority.key
  buildyard license keygen          # the default path of this machine`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			public, err := newPublicKeyPath(secret)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(streams.Err, "creating %s and %s\n", secret, public); err != nil {
				return err
			}
			if err := license.GenerateKeys(secret, public); err != nil {
				return err
			}
			_, err = fmt.Fprintf(streams.Out, "secret: %s (keep it secret: it can issue licenses)\npublic: %s (%s)\n",
				secret, public, trustHint(public))
			return err
		},
	}
	newKeyFlag(cmd, &secret, defaultAuthorityKey())
	return cmd
}

// newKeyFlag adds the flag --out of a command that creates a key pair, and its old name --key.
func newKeyFlag(cmd *cobra.Command, secret *string, path string) {
	cmd.Flags().StringVar(secret, "out", path, "new file for the private key")
	cmd.Flags().StringVar(secret, "key", path, "new file for the private key")
	_ = cmd.Flags().MarkHidden("key")
	cmd.MarkFlagsMutuallyExclusive("key", "out")
}

// trustHint returns how to install a public key so that licenses of its authority are accepted.
func trustHint(public string) string {
	system := filepath.Join(license.SystemDir, license.AuthorityFile)
	if at, err := filepath.Abs(public); err == nil && at == system {
		return "trusted on this machine; copy it to the same path on other machines"
	}
	return "copy it to " + system + " on machines that trust it"
}

func addAuthorityKeyFlag(cmd *cobra.Command, secret *string) {
	cmd.Flags().StringVar(secret, "key", defaultAuthorityKey(), "file with the private key of the authority")
}

func issueCommand(streams Streams) *cobra.Command {
	var secret, product, tier, subject, expires string
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a license key",
		Long: `issue signs a license with the private key of an authority and prints its license key, which is one line.
--expires is a day (until its end, UTC), an RFC 3339 time, a number of days such as 365d, or never.`,
		Example: `  buildyard license issue --product controller --tier enterprise --expires 2027-12-31 > controller.lic
  buildyard license issue --product image-scanner --subject "Example Ltd."`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			until, err := parseLicenseExpiry(expires, time.Now())
			if err != nil {
				return cli.Usage(err)
			}
			key, err := license.ReadSecret(secret)
			if err != nil {
				return err
			}
			text, err := license.IssueKey(key, license.License{
				Product: license.Product(product), Tier: farm.Tier(tier), Subject: subject, Expires: until,
			})
			if err != nil {
				return cli.Usage(err)
			}
			_, err = fmt.Fprintln(streams.Out, text)
			return err
		},
	}
	addAuthorityKeyFlag(cmd, &secret)
	fs := cmd.Flags()
	fs.StringVar(&product, "product", "", "product: controller, node or image-scanner")
	fs.StringVar(&tier, "tier", string(farm.TierEnterprisePlus), "license tier: basic, enterprise or enterprise plus")
	fs.StringVar(&subject, "subject", "", "name of the licensee")
	fs.StringVar(&expires, "expires", "never", "expiration time")
	_ = cmd.MarkFlagRequired("product")
	completeValues(cmd, "product", license.Products)
	completeValues(cmd, "tier", farm.Tiers)
	return cmd
}

// completeValues completes a flag.
func completeValues[T ~string](cmd *cobra.Command, flag string, values []T) {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// maxLicenseDays bounds a time in days: a hundred years are indefinitely.
const maxLicenseDays = 36525

// parseLicenseExpiry reads the end of a license; zero is never.
func parseLicenseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if day, e := time.Parse(time.DateOnly, text); e == nil {
		until, err = day.AddDate(0, 0, 1), nil
	}
	if days, e := strconv.Atoi(strings.TrimSuffix(text, "d")); e == nil && strings.HasSuffix(text, "d") && days > 0 &&
		days <= maxLicenseDays {
		until, err = now.Add(time.Duration(days)*24*time.Hour).Truncate(time.Second), nil
	}
	switch {
	case err != nil:
		return until,
			fmt.Errorf(
				"invalid --expires %q: want a day such as 2027-12-31, an RFC 3339 time, days such as 365d, or never",
				text)
	case !until.After(now):
		return until, fmt.Errorf("--expires %s has passed", text)
	}
	return until, nil
}

// licenseOutput is the output of show for a key.
type licenseOutput struct {
	Valid   bool            `json:"valid"`
	Product license.Product `json:"product,omitempty"`
	Tier    farm.Tier       `json:"tier,omitempty"`
	Subject string          `json:"subject,omitempty"`
	Expires time.Time       `json:"expires,omitzero"` // absent: never
	Problem string          `json:"problem,omitempty"`
}

func showLicenseCommand(streams Streams) *cobra.Command {
	var authority string
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "show FILE|KEY",
		Short: "Verify a license",
		Long: `show verifies a license, given as a file, as a license key, or as - for standard input, and prints its
tier, subject and expiration time, or why it is not valid. It calls no service.`,
		Example: `  buildyard license show controller.lic
  buildyard license show controller.lic --license-authority authority.pub -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := readLicenseKey(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			trust, err := license.LoadTrustedKeys(authority)
			if err != nil {
				return err
			}
			shown := checkLicense(trust, key, time.Now())
			if err := output.Write(streams.Out, shown, shown.table); err != nil {
				return err
			}
			if !shown.Valid {
				return errors.New("license not valid: " + shown.Problem)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&authority, "license-authority", "",
		"file with the trusted public keys (default: authority.pub in /etc/buildyard and in the user's configuration "+
			"directory)")
	output.Add(cmd)
	return cmd
}

// readLicenseKey returns the license key of an argument.
func readLicenseKey(in io.Reader, arg string) (string, error) {
	if strings.HasPrefix(arg, "BY1.") {
		return arg, nil
	}
	if arg != "-" {
		return license.ReadLicenseKey(arg)
	}
	raw, err := io.ReadAll(io.LimitReader(in, license.MaxKeyBytes+1))
	return string(raw), err
}

func checkLicense(trust license.TrustedKeys, key string, now time.Time) licenseOutput {
	l, err := trust.Verify(key)
	s := licenseOutput{Valid: err == nil, Product: l.Product, Tier: l.Tier, Subject: l.Subject, Expires: l.Expires}
	switch {
	case err != nil:
		s.Problem = err.Error()
	case l.Expired(now):
		s.Valid, s.Problem = false, "expired on "+l.Expires.UTC().Format(time.RFC3339)
	}
	return s
}

func (s licenseOutput) table(g *cli.Grid) {
	word := map[bool]string{true: "yes", false: "no"}[s.Valid]
	g.Row("valid", word)
	if s.Problem != "" {
		g.Row("problem", s.Problem)
	}
	if s.Product == "" {
		return
	}
	expires := "never"
	if !s.Expires.IsZero() {
		expires = s.Expires.UTC().Format(time.RFC3339)
	}
	g.Row("product", s.Product)
	g.Row("tier", s.Tier)
	g.Row("subject", s.Subject)
	g.Row("expires", expires)
}
