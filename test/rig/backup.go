package rig

import "context"

// Backup has the controller back itself up into a file.
func (c *Cloud) Backup(ctx context.Context, file string) error {
	_, err := Output(ctx, "", c.programs.Path("buildyard"), "backup", file, "--controller", c.Controller)
	return err
}

// Restore puts a backup in the place of what the controller keeps; it must not run.
func (c *Cloud) Restore(ctx context.Context, file string) error {
	_, err := Output(ctx, "", c.programs.Path("buildyard"), "restore", file, "--force", "--data-dir", c.dataDir)
	return err
}
