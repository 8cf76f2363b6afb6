package scan

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/scan/disk"
)

// CatalogEach catalogs a source, or the newest tag of every template when all are selected, or all tags, and passes
// each inventory to do. A template that cannot be read at all becomes an inventory with a warning
// about that: the others still count.
func CatalogEach(ctx context.Context, src Source, o Options, do func(*Inventory) error) error {
	if src.Type != Template {
		inv, err := catalogSource(ctx, src, o)
		if err != nil {
			return fmt.Errorf("%s: %w", src, err)
		}
		return do(inv)
	}
	storage, err := disk.OpenStorage(o.Storage)
	if err != nil {
		return fmt.Errorf("%s: read registry storage (-s) %s: %w", src, o.Storage, err)
	}
	defer func() { _ = storage.Close() }()
	if id, tag := src.templateVersion(); tag != "" || !src.IsAllTemplates() && !o.AllTags {
		inv, err := catalogTemplate(ctx, storage, id, tag, o)
		if err != nil {
			return fmt.Errorf("%s: %w", src, err)
		}
		return do(inv)
	}
	tags, damaged, err := src.selectVersions(storage, o.AllTags)
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	known := map[string]*Inventory{} // content -> inventory: equal content is scanned once
	ahead := map[string]int{}        // content -> number of following tags
	for _, t := range tags {
		ahead[t.ContentID]++
	}
	for _, t := range tags {
		ahead[t.ContentID]--
		inv := known[t.ContentID].forTemplate(t)
		if inv == nil {
			inv, err = catalogTemplate(ctx, storage, t.ID, t.Tag, o)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if inv == nil || err != nil {
			inv = unreadableTemplate(t.ID+":"+t.Tag, err.Error())
		} else {
			known[inv.ContentID] = inv
		}
		if ahead[t.ContentID] == 0 {
			delete(known, t.ContentID) // not all of a registry is kept in memory
		}
		if err := do(inv); err != nil {
			return err
		}
	}
	for _, d := range damaged {
		if err := do(unreadableTemplate(d.ID, d.Problem)); err != nil {
			return err
		}
	}
	return nil
}

// selectVersions returns the versions that a source without a tag selects, and the damage found among them.
func (s Source) selectVersions(
	storage *disk.Storage, allTags bool,
) (tags []disk.TemplateVersion, damaged []layout.DamagedTemplate, err error) {
	if !allTags {
		return storage.LatestVersions()
	}
	tags, damaged, err = storage.Versions()
	if err != nil || s.IsAllTemplates() {
		return tags, damaged, err
	}
	id, _ := s.templateVersion()
	tags = slices.DeleteFunc(tags, func(t disk.TemplateVersion) bool { return t.ID != id })
	damaged = slices.DeleteFunc(damaged, func(d layout.DamagedTemplate) bool { return d.ID != id })
	if len(tags)+len(damaged) == 0 {
		return nil, nil, fmt.Errorf("template %s not found, or without tags", id)
	}
	return tags, damaged, nil
}

// forTemplate returns the inventory as that of another template with the same content; nil of nil.
func (i *Inventory) forTemplate(t disk.TemplateVersion) *Inventory {
	if i == nil {
		return nil
	}
	same := *i
	same.Source, same.ID, same.Tag, same.Name = Source{Template, t.ID + ":" + t.Tag}, t.ID, t.Tag, t.Name
	return &same
}

// unreadableTemplate returns the inventory of a template that cannot be read.
func unreadableTemplate(target, problem string) *Inventory {
	return &Inventory{
		Source: Source{Template, target}, Skipped: []Skipped{{Name: target, Reason: problem, MayHavePackages: true}},
	}
}

const reasonAuxStorage = "it is the auxiliary storage of a macOS guest: boot policy and firmware variables, no packages"

// skippedArchive is the reason for a disk in the format of anka.
const skippedArchive = "an archive of anka cannot be read: only anka knows its form; scan the guest with hostscan"

func catalogTemplate(ctx context.Context, storage *disk.Storage, id, tag string, o Options) (*Inventory, error) {
	inv := &Inventory{}
	err := inv.catalogOpened(ctx, o, func(ctx context.Context, i *Inventory) ([]volume, io.Closer, error) {
		t, err := storage.Open(id, tag)
		if err != nil {
			return nil, nil, err
		}
		tag = t.TemplateVersion.Tag
		i.Source, i.ID, i.Tag, i.ContentID, i.Name = Source{Template, id + ":" + tag}, id, tag, t.ContentID, t.Name
		return i.openTemplateVolumes(ctx, t, o), t, nil
	})
	return inv, err
}

// openTemplateVolumes returns the file systems of all disks of a template, and records those that cannot be read.
func (i *Inventory) openTemplateVolumes(ctx context.Context, t *disk.Template, o Options) []volume {
	keys := disk.NewKeys(o.Keys)
	if t.AuxStorage != "" {
		i.Skipped = append(i.Skipped, Skipped{Name: t.AuxStorage, Reason: reasonAuxStorage})
	}
	var volumes []volume
	for _, d := range t.Disks {
		named := namedDisk{Disk: d}
		if len(t.Disks) > 1 {
			named.display = d.Name
		}
		if d.Format == disk.FormatAnka {
			i.Skipped = append(i.Skipped, Skipped{Name: d.Name, Reason: skippedArchive, MayHavePackages: true})
			continue
		}
		found, err := i.openVolumes(ctx, named, keys, o)
		if err != nil {
			i.Skipped = append(i.Skipped, Skipped{Name: d.Name, Reason: err.Error(), MayHavePackages: true})
			continue
		}
		for k := range found {
			found[k].disk = &d
		}
		volumes = append(volumes, found...)
	}
	return volumes
}

// Templates lists the templates of a registry's storage as "uuid" and "uuid:tag", for completion.
// A storage that cannot be read has none.
func Templates(storage string) (out []string) {
	tags, _, err := disk.LatestTemplates(storage)
	if err != nil {
		return nil
	}
	for _, t := range tags {
		out = append(out, t.ID, t.ID+":"+t.Tag)
	}
	return out
}
