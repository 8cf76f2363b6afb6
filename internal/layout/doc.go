// Package layout defines the registry's directories on disk and the metadata files in them. The registry writes
// through it; scanners and tools read through it.
//
// It is not the registry: it holds no index in memory, takes no lock, decides nothing about tags and never
// reads a layer file.
//
// Invariant: the rename of template.json is the only commit point. Files that a template.json does not name do
// not exist for readers, and those that it names were on stable storage before.
//
//	<base>/vm_dir/<template uuid>/template.json
//	<base>/vm_dir/<template uuid>/pulls.log
//	<base>/vm_dir/<template uuid>/.scans/<content id>.json.gz   what a scanner found in that content
//	<base>/vm_dir/<template uuid>/.traces/<content id>.json     what boots of that content read first
//	<base>/vm_dir/<template uuid>/<number>/{images,state_files,content_id,<uuid>.yaml,nvram}
//	<base>/images_dir/<64 hex digits>.ank         layer files of disks
//	<base>/state_file_dir/<64 hex digits>.ank     layer files of saved states
//	<base>/upload_dir/<session>/                  pushes that are not committed
//	<base>/trash_dir/<epoch nanoseconds>-<name>   deleted, not yet purged
//	<base>/aside_dir/<epoch nanoseconds>-<name>   damaged templates that a repair put there; never removed
//	<base>/deleted_dir/<template uuid>            empty: a deleted template had this ID
//	<base>/scrub.json, reserve                    position and findings of the scrub; space for small writes
//	<base>/files/central-logs/                    log server
package layout
