"""Sources of proposals, one file each; they know neither target nor loop."""
