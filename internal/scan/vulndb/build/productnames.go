package build

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/extsort"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
)

// sourceHosts are hosts of source repositories whose addresses begin with /OWNER/REPOSITORY.
var sourceHosts = map[string]bool{
	"github.com": true, "www.github.com": true, "gitlab.com": true, "codeberg.org": true, "bitbucket.org": true,
}

// repository is a source repository, in lower case with dashes for underscores.
type repository struct{ owner, name string }

// repositoriesOf returns the source repositories that references lead to.
func repositoriesOf(references []string) []repository {
	var out []repository
	for _, r := range references {
		u, err := url.Parse(r)
		if err != nil || !sourceHosts[strings.ToLower(u.Host)] {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
		if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
			continue
		}
		out = append(out, repository{dashed(parts[0]), dashed(strings.TrimSuffix(parts[1], ".git"))})
	}
	return out
}

// dashed spells a name of NVD or of a repository so that both can be compared.
func dashed(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Facts about the name of a product, of which a value in the sorter of names has one: a letter, and for a language its
// name.
const (
	nameFact       = "n"
	repositoryFact = "r"
	languageFact   = "t"
)

// sortNames passes the names of the products of a configuration to the sorter, with what its criteria and the
// references of its vulnerability say about them.
func (n *productApplicability) sortNames(names *extsort.Sorter, repositories []repository) error {
	for _, p := range n.vulnerableProducts {
		facts := []string{nameFact}
		vendor, name := dashed(p.vendor), dashed(p.name)
		if slices.ContainsFunc(repositories, func(r repository) bool {
			return r.name == name && (r.owner == vendor || r.owner == name)
		}) {
			facts = append(facts, repositoryFact)
		}
		for i, node := range n.Nodes {
			for j, c := range node.Criteria {
				if !c.Vulnerable || n.products[i][j] != p {
					continue
				}
				if l := languageFact + feed.CPETarget(c.CPE); !slices.Contains(facts, l) {
					facts = append(facts, l)
				}
			}
		}
		for _, f := range facts {
			if err := names.Add([]byte(p.name+"\x00"+p.vendor), []byte(f)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeProductNames writes the names of products, each once with all facts about it.
func (c *collector) writeProductNames(ctx context.Context, w *vulndb.Writer, names *extsort.Sorter) error {
	var last []byte
	var v vulndb.ProductVendor
	end := func() error {
		if last == nil {
			return nil
		}
		name, vendor, _ := bytes.Cut(last, []byte{0})
		v.Vendor = string(vendor)
		return c.skipRefused(w.ProductName(string(name), v), string(name))
	}
	err := names.Each(func(key, value []byte) error {
		if !bytes.Equal(key, last) {
			if err := errors.Join(end(), ctx.Err()); err != nil {
				return err
			}
			last, v = append(last[:0], key...), vulndb.ProductVendor{}
		}
		switch fact, language := string(value[:1]), string(value[1:]); {
		case fact == repositoryFact:
			v.OwnRepository = true
		case fact == languageFact && len(v.Languages) < len(vulndb.TargetLanguages) &&
			slices.Contains(vulndb.TargetLanguages, language) && !slices.Contains(v.Languages, language):
			v.Languages = append(v.Languages, language)
		}
		return nil
	})
	return errors.Join(err, end())
}
