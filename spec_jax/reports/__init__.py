"""Tables and pictures from records; nothing here touches a device."""
