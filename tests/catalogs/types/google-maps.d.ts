declare namespace GoogleMaps {
  interface MapsGeocodeArgs {
    /** The address to geocode */
    address: string;
  }
  interface MapsReverseGeocodeArgs {
    /** Latitude coordinate */
    latitude: number;
    /** Longitude coordinate */
    longitude: number;
  }
  interface MapsSearchPlacesArgs {
    /** Search query */
    query: string;
    /** Optional center point for the search */
    location?: {
      latitude?: number;
      longitude?: number;
    };
    /** Search radius in meters (max 50000) */
    radius?: number;
  }
  interface MapsPlaceDetailsArgs {
    /** The place ID to get details for */
    place_id: string;
  }
  interface MapsDistanceMatrixArgs {
    /** Array of origin addresses or coordinates */
    origins: string[];
    /** Array of destination addresses or coordinates */
    destinations: string[];
    /** Travel mode (driving, walking, bicycling, transit) */
    mode?: "driving" | "walking" | "bicycling" | "transit";
  }
  interface MapsElevationArgs {
    /** Array of locations to get elevation for */
    locations: {
      latitude: number;
      longitude: number;
    }[];
  }
  interface MapsDirectionsArgs {
    /** Starting point address or coordinates */
    origin: string;
    /** Ending point address or coordinates */
    destination: string;
    /** Travel mode (driving, walking, bicycling, transit) */
    mode?: "driving" | "walking" | "bicycling" | "transit";
  }
}

declare const mcp: {
  readonly "google-maps": {
    /** Convert an address into geographic coordinates */
    maps_geocode(args: GoogleMaps.MapsGeocodeArgs): Promise<unknown>;
    /** Convert coordinates into an address */
    maps_reverse_geocode(args: GoogleMaps.MapsReverseGeocodeArgs): Promise<unknown>;
    /** Search for places using Google Places API */
    maps_search_places(args: GoogleMaps.MapsSearchPlacesArgs): Promise<unknown>;
    /** Get detailed information about a specific place */
    maps_place_details(args: GoogleMaps.MapsPlaceDetailsArgs): Promise<unknown>;
    /** Calculate travel distance and time for multiple origins and destinations */
    maps_distance_matrix(args: GoogleMaps.MapsDistanceMatrixArgs): Promise<unknown>;
    /** Get elevation data for locations on the earth */
    maps_elevation(args: GoogleMaps.MapsElevationArgs): Promise<unknown>;
    /** Get directions between two points */
    maps_directions(args: GoogleMaps.MapsDirectionsArgs): Promise<unknown>;
  };
};
